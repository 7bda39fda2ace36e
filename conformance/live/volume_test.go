package live

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"
)

// volumeImage makes an image with nothing in it but the wish for a volume. Its containers can be made, and not started.
func volumeImage(t *testing.T, e *engine) string {
	t.Helper()
	var empty bytes.Buffer
	if err := tar.NewWriter(&empty).Close(); err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("locker-live-test:%s-%d", strings.ToLower(run), serial.Add(1))
	answer, err := e.docker.ImageImport(t.Context(), client.ImageImportSource{Source: &empty, SourceName: "-"}, name,
		client.ImageImportOptions{Changes: []string{"VOLUME /nameless"}})
	if err == nil {
		_, err = io.Copy(io.Discard, answer)
		err = errors.Join(err, answer.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = e.docker.ImageRemove(context.Background(), name, client.ImageRemoveOptions{}) })
	return name
}

// volumesOf returns the volumes of containers.
func volumesOf(t *testing.T, e *engine, ids ...string) []string {
	t.Helper()
	var names []string
	for _, id := range ids {
		i, err := e.docker.ContainerInspect(t.Context(), id, client.ContainerInspectOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range i.Container.Mounts {
			names = append(names, m.Name)
		}
	}
	return names
}

func wantNoVolume(t *testing.T, e *engine, names []string) {
	t.Helper()
	for _, name := range names {
		if _, err := e.docker.VolumeInspect(t.Context(), name, client.VolumeInspectOptions{}); !errdefs.IsNotFound(err) {
			t.Errorf("volume %s: got %v, want that there is none", name, err)
		}
	}
}

// unstarted makes a server whose container does not run.
func unstarted(ctx context.Context, e *engine, name, image string) (*Server, error) {
	s := &Server{name: name, port: "1/tcp", engine: e, volume: name}
	err := s.create(ctx, spec{data: "/data", command: []string{"none"}}, name, image)
	return s, err
}

// Neither the volume of the data is left when a server is removed, nor one that its image asks for.
func TestRemoveLeavesNoVolume(t *testing.T) {
	t.Parallel()
	e, err := docker()
	if err != nil {
		missing(t, "redis", false, err)
	}
	image := volumeImage(t, e)
	s, err := unstarted(t.Context(), e, "locker-live-"+run+"-volumes", image)
	if err != nil {
		t.Fatal(err)
	}
	volumes := volumesOf(t, e, s.box.GetContainerID())
	if got, want := len(volumes), 2; got != want {
		t.Errorf("the container has %d volumes, %q, want %d", got, volumes, want)
	}
	if err := s.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantNoVolume(t, e, volumes)
}

// late is a Docker that has forgotten a volume when the container comes: a reaper was faster.
type late struct{ client.APIClient }

func (late) VolumeCreate(context.Context, client.VolumeCreateOptions) (client.VolumeCreateResult, error) {
	return client.VolumeCreateResult{}, nil
}

// A volume that Docker makes by itself for a container of ours carries the label of the run, too.
func TestVolumeMadeAgainIsOurs(t *testing.T) {
	t.Parallel()
	e, err := docker()
	if err != nil {
		missing(t, "redis", false, err)
	}
	image := volumeImage(t, e)
	s, err := unstarted(t.Context(), &engine{provider: e.provider, docker: late{e.docker}}, "locker-live-"+run+"-again", image)
	if err != nil {
		t.Fatal(err)
	}
	v, err := e.docker.VolumeInspect(t.Context(), s.volume, client.VolumeInspectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := v.Volume.Labels[runLabel]; got != run {
		t.Errorf("label of the volume: got %q, want %q", got, run)
	}
	if err := s.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
}
