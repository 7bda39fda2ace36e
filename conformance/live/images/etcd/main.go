// Command etcd is the etcd server. Its own module cannot be installed by version, because it has replace directives.
//
// This module is in no workspace: it is built by its recipe alone, so that nobody else gets etcd's requirements.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
