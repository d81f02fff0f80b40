// Reads Compose files as Docker Compose does, with all profiles, and prints the project.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/compose-spec/compose-go/v2/cli"
)

func main() {
	options, err := cli.NewProjectOptions(os.Args[1:],
		cli.WithOsEnv, cli.WithEnvFiles(), cli.WithDotEnv, cli.WithProfiles([]string{"*"}))
	fail(err)
	project, err := options.LoadProject(context.Background())
	fail(err)
	written, err := project.MarshalYAML()
	fail(err)
	fmt.Print(string(written))
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
