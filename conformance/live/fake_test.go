package live

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
)

// fakeDocker is a Docker that has containers of runs, and nothing else.
type fakeDocker struct {
	client.APIClient
	away func() bool // nil: it never is

	mu         sync.Mutex
	containers map[string]string // id to run
}

var errAway = errors.New("the daemon is away")

func (f *fakeDocker) absent() error {
	if f.away != nil && f.away() {
		return errAway
	}
	return nil
}

func (f *fakeDocker) ContainerList(_ context.Context, o client.ContainerListOptions) (client.ContainerListResult, error) {
	if err := f.absent(); err != nil {
		return client.ContainerListResult{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var found client.ContainerListResult
	for id, run := range f.containers {
		if o.Filters["label"][runLabel+"="+run] {
			found.Items = append(found.Items, container.Summary{ID: id})
		}
	}
	return found, nil
}

func (f *fakeDocker) ContainerRemove(_ context.Context, id string, _ client.ContainerRemoveOptions) (client.ContainerRemoveResult, error) {
	if err := f.absent(); err != nil {
		return client.ContainerRemoveResult{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.containers, id)
	return client.ContainerRemoveResult{}, nil
}

func (f *fakeDocker) NetworkList(context.Context, client.NetworkListOptions) (client.NetworkListResult, error) {
	return client.NetworkListResult{}, f.absent()
}

func (f *fakeDocker) VolumeList(context.Context, client.VolumeListOptions) (client.VolumeListResult, error) {
	return client.VolumeListResult{}, f.absent()
}

// ids are the containers that are there.
func (f *fakeDocker) ids() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return strings.Join(slices.Sorted(maps.Keys(f.containers)), " ")
}
