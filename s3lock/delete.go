package s3lock

import (
	"context"
	"errors"
	"net/http"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/fencelock/locker/epoch"
)

// delete removes an object, if it is there.
func (b *bucket) delete(ctx context.Context, name string) error {
	a, once := b.begin()
	_, err := b.client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &b.name, Key: &name}, once)
	if err = b.refused(opDelete, a, err); errors.Is(err, epoch.ErrNotExist) {
		return nil
	}
	return err
}

// fewObjects are deleted one by one: not every store knows the request for many.
const fewObjects = 4

// deleteAll removes objects, up to maxPage.
func (b *bucket) deleteAll(ctx context.Context, names []string) error {
	if len(names) <= fewObjects {
		return b.deleteEach(ctx, names)
	}
	a, once := b.begin()
	in := &s3.DeleteObjectsInput{Bucket: &b.name, Delete: &types.Delete{Quiet: aws.Bool(true)}}
	for _, n := range names {
		in.Delete.Objects = append(in.Delete.Objects, types.ObjectIdentifier{Key: &n})
	}
	_, err := b.client.DeleteObjects(ctx, in, once)
	switch a.status {
	case http.StatusBadRequest, http.StatusMethodNotAllowed, http.StatusNotImplemented:
		return b.deleteEach(ctx, names)
	default:
		return b.refused(opDelete, a, err)
	}
}

func (b *bucket) deleteEach(ctx context.Context, names []string) error {
	for _, n := range names {
		if err := b.delete(ctx, n); err != nil {
			return err
		}
	}
	return nil
}
