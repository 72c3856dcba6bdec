// Program pause holds the namespaces of a pod: it does nothing until it is told to end.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	// Ignored: the kernel reaps the orphans of a pod whose containers share one process namespace.
	signal.Ignore(syscall.SIGCHLD)
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM, syscall.SIGINT)
	<-end
}
