package faultlock_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/locker/faultlock"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text string
		want faultlock.Schedule
	}{
		{"", nil},
		{" ; ;", nil},
		{"try=after", faultlock.Schedule{{Op: faultlock.Try, Fault: faultlock.After}}},
		{"*=before", faultlock.Schedule{{Op: faultlock.Any, Fault: faultlock.Before}}},
		{"renew#2=delayback:1.2s", faultlock.Schedule{{
			Op: faultlock.Renew, First: 2, Last: 2, Fault: faultlock.DelayBack,
			Min: 1200 * time.Millisecond, Max: 1200 * time.Millisecond,
		}}},
		{"poll#2-5=hang", faultlock.Schedule{{Op: faultlock.Poll, First: 2, Last: 5, Fault: faultlock.Hang}}},
		{"poll#3-=hangback", faultlock.Schedule{{Op: faultlock.Poll, First: 3, Fault: faultlock.HangBack}}},
		{"enqueue%0.1=before", faultlock.Schedule{{Op: faultlock.Enqueue, P: 0.1, Fault: faultlock.Before}}},
		{"release[jobs/a]#1-2%0.5=dup:0s-2s", faultlock.Schedule{{
			Op: faultlock.Release, Key: "jobs/a", First: 1, Last: 2, P: 0.5, Fault: faultlock.Dup, Max: 2 * time.Second,
		}}},
		{`list["a;b ]=\"\n"]=dup`, faultlock.Schedule{{Op: faultlock.List, Key: "a;b ]=\"\n", Fault: faultlock.Dup}}},
		{"break[a#1%=b]=dup", faultlock.Schedule{{Op: faultlock.Break, Key: "a#1%=b", Fault: faultlock.Dup}}},
		{"try=after;renew=before listen=hang\n\twait=after", faultlock.Schedule{
			{Op: faultlock.Try, Fault: faultlock.After},
			{Op: faultlock.Renew, Fault: faultlock.Before},
			{Op: faultlock.Listen, Fault: faultlock.Hang},
			{Op: faultlock.Wait, Fault: faultlock.After},
		}},
	} {
		got, err := faultlock.Parse(c.text)
		if err != nil {
			t.Errorf("Parse(%q): got error %v, want none", c.text, err)
			continue
		}
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("Parse(%q): got %#v, want %#v", c.text, got, c.want)
		}
		again, err := faultlock.Parse(got.String())
		if err != nil || !reflect.DeepEqual(again, got) {
			t.Errorf("Parse(%q): got %#v, %v, want %#v", got.String(), again, err, got)
		}
	}
}

func TestParseErrorsNameThePieceAndWhatIsAllowed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, piece, allowed string }{
		{"tyr=after", `"tyr"`, "try, renew, release, listen, enqueue, poll, wait, inspect, list, break, ping"},
		{"try=after; =after", `""`, "try"},
		{"try", "no fault", "before, after, delay, delayback, hang, hangback, dup"},
		{"try=lost", `"lost"`, "before, after"},
		{"try=", `""`, "before, after"},
		{"try=delay", "no duration", "delay:D"},
		{"try=before:1s", `"1s"`, "none"},
		{"try=delay:1", `"1"`, "1.2s"},
		{"try=delay:2s-1s", `"2s-1s"`, "rising range"},
		{"try=delay:-1s", `"-1s"`, "1.2s"},
		{"try=dup:x", `"x"`, "1.2s"},
		{"try#0=after", `"0"`, "from 1"},
		{"try#=after", `""`, "N-M"},
		{"try#5-2=after", `"5-2"`, "N-M"},
		{"try#x=after", `"x"`, "N-M"},
		{"try#1-x=after", `"1-x"`, "N-M"},
		{"try%0=after", `"0"`, "above 0"},
		{"try%1.1=after", `"1.1"`, "at most 1"},
		{"try%NaN=after", `"NaN"`, "number"},
		{"try%0.1#2=after", `"0.1#2"`, "number"},
		{"try[]=after", "[]", "full key"},
		{`try[""]=after`, "[]", "full key"},
		{"try[a=after", "[a=after", "]"},
		{`try["a=after`, `"a=after`, "Go string"},
		{`try["a"x]=after`, `"a"x]`, "]"},
		{"try[a]x=after", `"x"`, "#ORDINAL"},
	} {
		_, err := faultlock.Parse(c.text)
		if err == nil {
			t.Errorf("Parse(%q): got no error, want one about %s", c.text, c.piece)
			continue
		}
		for _, want := range []string{"faultlock: ", c.piece, c.allowed} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("Parse(%q): got %q, want it to say %q", c.text, err, want)
			}
		}
	}
}

func TestScheduleIsText(t *testing.T) {
	t.Parallel()
	var got faultlock.Schedule
	if err := json.Unmarshal([]byte(`"try#1=after; renew=before"`), &got); err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(got)
	equal(t, "error", err, nil)
	equal(t, "json", string(b), `"try#1=after; renew=before"`)
	if err := json.Unmarshal([]byte(`"no"`), &got); err == nil {
		t.Fatal("got no error, want one")
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{"try=after", `renew["k\n"]#1-2%0.5=delay:1s-2s;x`, "a[", `"`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := faultlock.Parse(text)
		if err != nil {
			return
		}
		again, err := faultlock.Parse(s.String())
		if err != nil || !reflect.DeepEqual(again, s) {
			t.Fatalf("Parse(%q): got %#v, %v, want %#v", s.String(), again, err, s)
		}
	})
}
