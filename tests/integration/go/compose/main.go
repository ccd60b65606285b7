// Reads a compose file as `docker compose config` does, with the library of Compose itself, and prints it as JSON.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/compose-spec/compose-go/v2/cli"
)

func main() {
	options, err := cli.NewProjectOptions(os.Args[1:], cli.WithOsEnv, cli.WithProfiles([]string{"*"}))
	if err == nil {
		var document []byte
		project, failed := options.LoadProject(context.Background())
		if err = failed; err == nil {
			document, err = project.MarshalJSON()
			fmt.Println(string(document))
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
