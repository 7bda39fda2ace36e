package run

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/fencelock/locker"
	"github.com/fencelock/locker/cmd/locker/internal/job"
	"github.com/fencelock/locker/cmd/locker/internal/target"
)

// runner is one run: wait for the key, run the command, give the key back.
type runner struct {
	Config
	voice   *voice
	result  Result
	signals chan os.Signal
	locker  *locker.Locker
	granted time.Time
	repeat  syscall.Signal // what the terminal sent to the command alone
}

// Run runs the command under the lock and returns the exit code.
func Run(c Config) int {
	return c.report(func(r *runner) int {
		if err := r.check(); err != nil {
			return r.fail(CodeFailed, err)
		}
		return r.run()
	})
}

// Refuse tells, as Run does, why there is nothing to run, and returns the exit code. Of c
// it needs Key, Result and JSON.
func Refuse(c Config, why error) int {
	return c.report(func(r *runner) int { return r.fail(CodeFailed, why) })
}

// report does something and tells how it came out.
func (c Config) report(do func(*runner) int) int {
	r := &runner{
		Config:  c,
		voice:   newVoice(c.Key, c.JSON, c.Verbose),
		result:  Result{Outcome: Failed, Key: c.Key},
		signals: make(chan os.Signal, 64),
	}
	code := r.toFile(do)
	if c.JSON {
		r.voice.encode(&r.result)
	}
	r.voice.close()
	if r.repeat != 0 {
		job.Repeat(r.repeat)
		time.Sleep(lastWords) // for the signal to arrive
	}
	return code
}

// toFile does it between opening the result file and writing it.
func (r *runner) toFile(do func(*runner) int) int {
	file, err := openReport(r.Result)
	if err != nil {
		return r.fail(CodeFailed, err)
	}
	r.result.ExitCode = do(r)
	if err := file.write(&r.result); err != nil {
		r.voice.say("the result cannot be written: %v", err)
	}
	return r.result.ExitCode
}

func (r *runner) fail(code int, err error) int {
	r.result.Error, r.result.ExitCode = target.Plain(err).Error(), code
	r.voice.say("%v", err)
	return code
}

func (r *runner) run() int {
	// A command that cannot run must not take the key from anybody.
	path, err := job.Find(r.Command[0])
	if err != nil {
		return r.notStarted(err)
	}
	if r.Target.Unasked {
		r.voice.say(target.Warning)
	}
	lease, err := r.acquire()
	if err != nil {
		defer r.close()
		return r.refused(err)
	}
	r.granted = time.Now()
	r.result.Token, r.result.Owner = lease.Token(), lease.Grant().Owner
	r.result.WaitedMS = milliseconds(r.granted.Sub(r.Began))

	j, h, err := r.start(path, lease)
	if err != nil {
		r.release(lease)
		r.close()
		return r.notStarted(err)
	}
	r.voice.detail("got %q with token %v after %v", r.Key, lease.Token(), r.granted.Sub(r.Began).Round(time.Millisecond/10))

	end := h.hold(j)
	return r.finish(lease, end)
}

// start starts the command under the lease.
func (r *runner) start(path string, lease *locker.Lease) (*job.Job, *holder, error) {
	killAfter, err := r.killAfter(lease.TTL()) // once more: the backend may grant less
	if err != nil {
		return nil, nil, err
	}
	keep, err := target.Descriptor(lease)
	if err != nil {
		return nil, nil, err
	}
	if keep != nil {
		defer keep.Close()
	}
	h := &holder{runner: r, lease: lease, guard: guard{onLoss: r.OnLoss, killAfter: killAfter}}
	if r.MaxHold > 0 {
		h.guard.maxAt = r.granted.Add(r.MaxHold)
	}
	j, err := job.Start(job.Command{
		Path: path, Args: r.Command, Env: environment(lease), Keep: keep,
		// Without a holder nobody renews. Who has chosen to run on without a lock
		// has chosen it for this case too.
		DieWithParent: r.OnLoss != Ignore,
	})
	if err != nil {
		return nil, nil, err
	}
	r.result.StartedMS = milliseconds(time.Since(r.Began))
	job.CatchStop(r.signals)
	return j, h, nil
}

// environment is this process's own and what the command may want to know of its lock.
func environment(lease *locker.Lease) []string {
	g := lease.Grant()
	set := []string{
		keyVariable + "=" + lease.Key(),
		tokenVariable + "=" + g.Token.String(),
		ownerVariable + "=" + g.Owner,
		ttlVariable + "=" + strconv.FormatFloat(g.TTL.Seconds(), 'f', -1, 64),
		heldVariable + "=" + strings.TrimSpace(os.Getenv(heldVariable)+" "+g.Attempt.String()),
	}
	var env []string
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		switch name {
		case keyVariable, tokenVariable, ownerVariable, ttlVariable, heldVariable:
		default:
			env = append(env, v)
		}
	}
	return append(env, set...)
}

func (r *runner) notStarted(err error) int {
	switch {
	case job.IsMissing(err):
		return r.fail(CodeNotFound, err)
	case job.IsExec(err):
		return r.fail(CodeNotExecutable, err)
	}
	return r.fail(CodeFailed, err)
}

// finish gives the key back, if it is known that nothing uses it any more.
func (r *runner) finish(lease *locker.Lease, end ending) int {
	if end.command != nil {
		r.result.child(*end.command)
	}
	code := r.judge(lease, end)
	if !end.gone {
		r.voice.say("it cannot be confirmed that the command is gone: not released, the key lapses with its ttl")
		if err := leaveKeeper(lease); err != nil {
			r.voice.say("nothing keeps the key until then: %v", err)
		}
		r.result.HeldMS = milliseconds(time.Since(r.granted))
		return code // and no Close: it would release
	}
	if r.result.Outcome == Ran {
		r.waitMinHold(lease)
		if end.terminal && end.command.Signal == syscall.SIGINT {
			r.repeat = syscall.SIGINT
		}
	}
	r.release(lease)
	r.close()
	return code
}

// judge says what became of the run.
func (r *runner) judge(lease *locker.Lease, end ending) int {
	own := CodeFailed
	if end.command != nil {
		own = end.command.ExitCode()
	}
	lost := lease.Err()
	switch {
	case end.cause == MaxHold:
		r.result.Outcome = MaxHold
		return CodeMaxHold
	case end.cause == Lost || lost != nil:
		r.result.Outcome = Lost
		if lost != nil {
			r.result.Error = target.Plain(lost).Error()
		}
		if r.OnLoss == Ignore {
			return own
		}
		return CodeLost
	}
	r.result.Outcome = Ran
	return own
}

// waitMinHold keeps the key as long as was asked for. A signal ends that.
func (r *runner) waitMinHold(lease *locker.Lease) {
	left := r.MinHold - time.Since(r.granted)
	if left <= 0 {
		return
	}
	r.voice.detail("the command has ended; holding for another %v", left.Round(time.Millisecond))
	t := time.NewTimer(left)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			return
		case <-lease.Done():
			return
		case s := <-r.signals:
			if job.Ends(s) {
				return
			}
		}
	}
}

func (r *runner) release(lease *locker.Lease) {
	r.result.HeldMS = milliseconds(time.Since(r.granted))
	err := lease.Release(context.Background())
	switch {
	case err == nil:
		r.result.Released = true
		r.voice.detail("released %q", r.Key)
	case errors.Is(err, locker.ErrLost): // said already, and there is nothing to release
	default:
		r.voice.say("%v; the key is free when its ttl has passed", err)
	}
}

func (r *runner) close() {
	if r.locker == nil {
		return
	}
	if err := r.locker.Close(); err != nil {
		r.voice.detail("%v", err)
	}
	r.locker = nil
}
