package main

import "github.com/alecthomas/kong"

// cli is the grammar of the command line.
type cli struct {
	globals

	Run      runCmd      `cmd:"" help:"Answer a prompt."`
	Hidden   hiddenCmd   `cmd:"" help:"Write the hidden states of a prompt, between layers, to a file."`
	Gateway  gatewayCmd  `cmd:"" help:"Answer programs that speak OpenAI's API."`
	Serve    serveCmd    `cmd:"" help:"Run a node: a volunteer, or a bootstrap and tracker."`
	Publish  publishCmd  `cmd:"" help:"Publish a GGUF model into the swarm and seed it."`
	Pull     pullCmd     `cmd:"" help:"Fetch a model, or some of its layers."`
	Gc       gcCmd       `cmd:"" help:"Free the disk space of what no pin and no served layer needs."`
	Pin      pinCmd      `cmd:"" help:"Have a model, or some of its layers, stay on this disk."`
	Unpin    unpinCmd    `cmd:"" help:"Let gc free a model that is not served."`
	Plan     planCmd     `cmd:"" help:"Show who would compute what for a prompt, and how fast."`
	Models   modelsCmd   `cmd:"" help:"List the models that are held here or offered in the swarm."`
	Inspect  inspectCmd  `cmd:"" help:"Say what a GGUF file holds, what running it takes, and whether this build can."`
	Status   statusCmd   `cmd:"" help:"Show what the node on this data folder does."`
	Pause    pauseCmd    `cmd:"" help:"Make the node take no new work of others, until resume."`
	Resume   resumeCmd   `cmd:"" help:"End a pause."`
	Block    blockCmd    `cmd:"" help:"Have nothing to do with a peer or a model any longer."`
	Stop     stopCmd     `cmd:"" help:"End the node, once its sessions have ended or are handed over."`
	Swarm    swarmCmd    `cmd:"" help:"Create, join, list swarms and invite others."`
	Key      keyCmd      `cmd:"" help:"Back up and restore the keys of this machine."`
	Demo     demoCmd     `cmd:"" help:"Show everything at work: a private swarm of processes on this machine."`
	Doctor   doctorCmd   `cmd:"" help:"Find what keeps this machine from being of use, and say what to do."`
	Bench    benchCmd    `cmd:"" help:"Measure how fast this machine runs a model, and how near to its limits."`
	Simulate simulateCmd `cmd:"" help:"Play a swarm of up to 100,000 machines in virtual time, with the real planner."`
	Selftest selftestCmd `cmd:"" help:"Check that this build computes the specified bits on this machine."`
	Version  versionCmd  `cmd:"" help:"Print the version."`
}

// globals are the settings that all verbs share.
type globals struct {
	Config       configFile `group:"Settings" env:"STARLING_CONFIG" placeholder:"FILE" help:"JSON file of settings: an object with flag names as keys. Flags win over the environment, that over the file. Default: ${config}."`
	Data         string     `group:"Settings" env:"STARLING_DATA" type:"path" placeholder:"DIR" default:"${data}" help:"Data folder: identity, swarms, models. Default: ${data}."`
	Swarm        string     `group:"Settings" env:"STARLING_SWARM" placeholder:"ID|NAME" help:"Swarm to be in. Needed only when the data folder knows several."`
	Listen       []string   `group:"Settings" env:"STARLING_LISTEN" placeholder:"ADDR" help:"Multiaddr to listen on, such as /ip4/0.0.0.0/tcp/4077. Default: TCP and QUIC on port 4077, or on free ports when that is taken."`
	Bootstrap    []string   `group:"Settings" env:"STARLING_BOOTSTRAP" placeholder:"ADDR" help:"Multiaddr with /p2p/PEER of a node to meet others through, beside those that the swarm knows."`
	Reachability string     `group:"Settings" env:"STARLING_REACHABILITY" enum:"auto,public,private" default:"auto" help:"Whether others can dial this node: public, private (it is behind a NAT or firewall and gets addresses through a relay at once), or auto: it asks peers to dial back, and knows within seconds. Default: auto."`
	LAN          bool       `group:"Settings" name:"lan" env:"STARLING_LAN" help:"Find nodes on the local network by mDNS, and be found."`
	torrentFlags
	computing
	Log       logLevels `group:"Settings" env:"STARLING_LOG" placeholder:"LEVELS" help:"What to log on stderr: debug, info, warn or error; of one package, of node, swarm and artifacts, by name, such as info,node=debug,swarm=warn. Default: info for serve, else warn."`
	LogFormat string    `group:"Settings" env:"STARLING_LOG_FORMAT" enum:"text,json" default:"text" help:"How to log: text or json."`
	Verbose   bool      `group:"Settings" short:"v" env:"STARLING_VERBOSE" help:"Say more on stderr."`
}

const description = `Starling runs large language models across a swarm of volunteers. Each holds some layers of a model; a prompt is
prefilled across them, and the peer with the final layers decodes alone. Every number is the same whatever the split.`

const firstSteps = `

Start with "starling demo". Then, on your own machines:

  starling swarm create friends          # a private swarm, on the first machine
  starling serve --publish model.gguf    # its first node: publishes and serves a model
  starling swarm invite                  # prints an invitation; on the next machine:
  starling swarm join INVITE
  starling serve --model NAME --layers 0-9
  starling run "Why is the sky blue?"

"starling VERB --help" explains each verb with examples.`

// newParser makes the parser of c.
func newParser(c *cli) (*kong.Kong, error) {
	return kong.New(c,
		kong.Name("starling"),
		kong.Description(description+firstSteps),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, NoExpandSubcommands: true, NoAppDescFormat: true, WrapUpperBound: 110}),
		kong.Vars{"data": defaultDataDir(), "config": defaultConfigPath(), "demosystem": demoSystem},
		kong.WithBeforeResolve(defaultConfig),
	)
}
