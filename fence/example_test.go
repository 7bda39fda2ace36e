package fence_test

import (
	"context"
	"fmt"

	"github.com/fencelock/locker/fence"
)

func ExampleGate() {
	ctx := context.Background()
	var gate fence.Gate // of a resource in this process's memory

	// The new holder, with token 34, raises before it reads.
	fmt.Println(gate.Raise(ctx, "report", 34))
	// The old one wakes and writes.
	fmt.Println(gate.Check(ctx, "report", 33))
	// The new one may write as often as it likes.
	fmt.Println(gate.Check(ctx, "report", 34))
	// Output:
	// <nil>
	// fence: stale token: "report" has seen 34, and this is 33
	// <nil>
}

func ExampleRegister() {
	ctx := context.Background()
	var balance fence.Register[int]

	_ = balance.Write(ctx, 33, 100)
	_ = balance.Raise(ctx, 34)
	v, _ := balance.Read(ctx, 34)
	fmt.Println(v)
	fmt.Println(balance.Write(ctx, 33, 0) != nil) // too late
	fmt.Println(balance.Write(ctx, 34, v+1))
	// Output:
	// 100
	// true
	// <nil>
}
