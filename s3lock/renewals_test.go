package s3lock

import (
	"net/http"
	"sync"
	"testing"
)

// Renewals of one grant that are under way at once do not take each other for a stranger's.
func TestRenewalsAtOnce(t *testing.T) {
	t.Parallel()
	s := newDouble(t)
	d := s.driver(nil)
	g := acquire(t, d, "k")
	const many = 2
	var both sync.WaitGroup
	both.Add(many)
	first := true
	answered := make(chan struct{})
	s.wrong(func(s *double) {
		s.answer = func(r *http.Request) (int, string, bool) {
			if r.Method == http.MethodPut {
				both.Done()
				both.Wait()
				s.mu.Lock()
				mine := first
				first = false
				s.mu.Unlock()
				if !mine {
					<-answered
				}
			}
			return 0, "", false
		}
	})
	errs := make(chan error, many)
	for range many {
		go func() {
			_, err := d.Renew(within(t), g)
			errs <- err
		}()
	}
	if err := <-errs; err != nil {
		t.Errorf("the first: %v", err)
	}
	close(answered)
	if err := <-errs; err != nil {
		t.Errorf("the second: %v", err)
	}
	s.wrong(func(s *double) { s.answer = nil })
	if _, err := d.Renew(within(t), g); err != nil {
		t.Errorf("a third: %v", err)
	}
}
