package control

import "time"

// Layers is an inclusive range as people write it ("0-9"); nil means all.
type Layers struct {
	First int `json:"first"`
	Last  int `json:"last"`
}

// Swarm describes the swarm that a node belongs to.
type Swarm struct {
	ID        string   `json:"id"`
	Name      string   `json:"name"`
	Public    bool     `json:"public"`
	Bootstrap []string `json:"bootstrap,omitempty"`
	Owner     bool     `json:"owner"` // this data folder has a key that may invite and revoke
}

// Status is what a node knows about itself.
type Status struct {
	Version   string        `json:"version"`
	PID       int           `json:"pid"` // of the node's process
	Peer      string        `json:"peer"`
	Addrs     []string      `json:"addrs"`                  // each with /p2p/PEER
	Torrent   string        `json:"torrent_addr,omitempty"` // HOST:PORT for ordinary BitTorrent clients
	Swarm     Swarm         `json:"swarm"`
	Role      string        `json:"role"`     // "volunteer", "tracker", "client"
	Standing  string        `json:"standing"` // "accepting", "paused", "leaving": what new work it takes
	Uptime    time.Duration `json:"uptime_ns"`
	Connected []string      `json:"connected"`
	Looking   []Contact     `json:"looking,omitempty"` // where nobody is connected: those through whom it tries to meet the swarm
	Relayed   []Relayed     `json:"relayed,omitempty"` // those of them that are reached through a relay
	Reachable string        `json:"reachable"`         // by others: "public", "private", "unknown"
	Models    []Model       `json:"models"`
	Sessions  []Session     `json:"sessions"`
	Kept      Kept          `json:"kept"`
	Spare     *Spare        `json:"spare,omitempty"`    // nil: no disk is given
	Terms     *Terms        `json:"terms,omitempty"`    // nil: it is a client
	Measured  *Measured     `json:"measured,omitempty"` // nil: the machine hasn't been measured
	Profile   string        `json:"numerics_profile"`
	Problems  []string      `json:"problems,omitempty"` // what a person should look at
}

// Network is what a node has found out about its place in the swarm.
type Network struct {
	Connected int             `json:"connected"`     // peers
	DHT       int             `json:"dht_peers"`     // in this node's table of the swarm's DHT
	Bootstrap []Contact       `json:"bootstrap"`     // those that it was told to meet the swarm through
	Clocks    []time.Duration `json:"clocks_ns"`     // by how much peers' clocks are ahead of this node's, ascending
	Listen    []string        `json:"listen"`        // addresses of this machine, each with /p2p/PEER
	Reachable string          `json:"reachable"`     // as in Status
	NAT       string          `json:"nat,omitempty"` // "cone", "symmetric", or not known
	Relayed   bool            `json:"relayed"`       // it has addresses at relays
}

// Contact is how a node stands with a peer that it was told to meet the swarm through.
type Contact struct {
	Peer      string   `json:"peer"`
	Addrs     []string `json:"addrs"`
	Connected bool     `json:"connected"`
	Elsewhere bool     `json:"elsewhere,omitempty"` // connected, but it is in another swarm
	Refused   bool     `json:"refused,omitempty"`   // it answers, and doesn't let this node in
	Error     string   `json:"error,omitempty"`     // of the latest attempt
}

// BlockRequest asks to have nothing to do with a peer or a model any longer.
type BlockRequest struct {
	What    string `json:"what,omitempty"`    // a peer's ID, or a model, named as in PullRequest; "": change nothing
	Unblock bool   `json:"unblock,omitempty"` // instead: deal with it again
}

// Blocked is what a node has nothing to do with.
type Blocked struct {
	Peers  []string `json:"peers"`
	Models []string `json:"models"` // whole IDs
}

// Terms are what a node's owner gives, and what of it is used.
type Terms struct {
	Hours   string `json:"hours,omitempty"` // of the day at which the node works for others, such as "22:00-07:00"; "": always
	Battery bool   `json:"pause_on_battery,omitempty"`
	Metered bool   `json:"pause_on_metered,omitempty"`
	Away    string `json:"away,omitempty"` // why by these it works for nobody now

	MaxUpload       int64 `json:"max_upload,omitempty"`   // bytes per second, of torrents and sessions; 0: any
	MaxDownload     int64 `json:"max_download,omitempty"` // likewise
	Sent            int64 `json:"sent"`                   // bytes since the start, of torrents and sessions
	Received        int64 `json:"received"`
	SessionSent     int64 `json:"session_sent"` // … of sessions alone
	SessionReceived int64 `json:"session_received"`
	MaxDisk         int64 `json:"max_disk,omitempty"` // bytes, for fetched models; 0: any
	Disk            int64 `json:"disk"`               // … that they take
	SessionsPerPeer int   `json:"sessions_per_peer,omitempty"`
	TokensPerMinute int   `json:"tokens_per_minute,omitempty"`
	StreamsPerPeer  int   `json:"streams_per_peer"`
	Blocked         int   `json:"blocked,omitempty"` // peers and models

	Memory MemoryUse `json:"memory"`

	Peers []PeerUse `json:"peers,omitempty"` // what those connected have, by bytes
}

// MemoryUse is what models take of a node's memory, in bytes.
type MemoryUse struct {
	Max    int64 `json:"max,omitempty"` // for them and the node's buffers together; 0: what the machine has
	Packed int64 `json:"packed"`        // copies of weights
	Mapped int64 `json:"mapped"`        // weights used from files, which the system can take back
	KV     int64 `json:"kv"`            // of sessions, and kept of ended ones
	MaxKV  int64 `json:"max_kv"`
}

// PeerUse is what a connected peer has of this node.
type PeerUse struct {
	Peer     string `json:"peer"`
	Sessions int    `json:"sessions"` // of its own: what it is a client of
	Streams  int    `json:"streams"`  // that it has opened
	Sent     int64  `json:"sent"`     // bytes to it since it connected, of everything but the DHT
	Received int64  `json:"received"`
}

// Relayed says through whom a peer is reached.
type Relayed struct {
	Peer  string `json:"peer"`
	Relay string `json:"relay"`
}

// Spare is what a node seeds from spare disk, for the swarm's sake.
type Spare struct {
	Limit   int64        `json:"limit"` // bytes
	Used    int64        `json:"used"`  // bytes
	Models  []SpareModel `json:"models"`
	Problem string       `json:"problem,omitempty"` // why the latest attempt failed
}

// SpareModel is what spare disk has of one model.
type SpareModel struct {
	Model  string `json:"model"`
	Name   string `json:"name"`
	Layers []int  `json:"layers"` // ascending
	Rest   bool   `json:"rest"`   // what no layer owns: header, embedding, head
	Bytes  int64  `json:"bytes"`
}

// Kept is what the node has of ended sessions for those that begin alike.
type Kept struct {
	Memory    int64 `json:"memory"`    // bytes, of all models
	Disk      int64 `json:"disk"`      // bytes
	Hits      int64 `json:"hits"`      // times that a session began with a cache
	Positions int64 `json:"positions"` // … which were not computed again, in all
}

// Model is one model as this node sees it.
type Model struct {
	ID        string  `json:"id"`
	Name      string  `json:"name"`
	Arch      string  `json:"architecture,omitempty"`
	Quant     string  `json:"quant,omitempty"`
	NumLayers int     `json:"num_layers,omitempty"`
	Width     int     `json:"width,omitempty"` // of the residual stream
	Vocab     int     `json:"vocab,omitempty"` // tokens
	Context   int     `json:"context,omitempty"`
	Bytes     int64   `json:"bytes,omitempty"`           // whole file or set
	Allocated int64   `json:"allocated_bytes,omitempty"` // really on this disk
	Path      string  `json:"path,omitempty"`            // of part 1, when local
	Held      *Layers `json:"held,omitempty"`            // verified on this disk
	Serving   *Layers `json:"serving,omitempty"`         // loaded and offered
	Pinned    *Layers `json:"pinned,omitempty"`          // to stay on this disk, as somebody said
	Decoder   bool    `json:"decoder"`                   // serving includes decoding
	Draft     string  `json:"draft,omitempty"`           // name of the model that guesses for it there
	Peers     int     `json:"peers"`                     // that offer some of it, this node included
	Covered   bool    `json:"covered"`                   // the offers cover every layer

	Torrents []Torrent `json:"torrents,omitempty"` // of its parts; of publish, if asked for
}

// Session is one session in which this node takes part.
type Session struct {
	ID      string        `json:"id"`
	Role    string        `json:"role"` // "client", "decoder", "stage"
	Model   string        `json:"model"`
	Layers  string        `json:"layers"`
	Tokens  int           `json:"tokens"`
	KVBytes int64         `json:"kv_bytes"`
	Age     time.Duration `json:"age_ns"`
}

// Peer is one offer seen by this node.
type Peer struct {
	Peer    string  `json:"peer"`
	Model   string  `json:"model"`
	Name    string  `json:"name"`
	Layers  Layers  `json:"layers"`
	Decoder bool    `json:"decoder"`
	Draft   string  `json:"draft,omitempty"` // ID of the model that guesses ahead there
	Prefill float64 `json:"prefill_flops"`
	Decode  float64 `json:"decode_bytes_per_sec"`
	Slower  float64 `json:"slower,omitempty"` // how many times slower than these speeds it is planned with, by what sessions took
	KVFree  int64   `json:"kv_free_bytes"`
	Relayed bool    `json:"relayed,omitempty"` // has no public address but through a relay
	Self    bool    `json:"self"`
}

// PublishRequest asks to hash, seed and announce a GGUF file or split set.
type PublishRequest struct {
	Path     string   `json:"path"`                // any part of a set
	Licence  string   `json:"licence,omitempty"`   // to list the model under; "": as its header says
	WebSeeds []string `json:"web_seeds,omitempty"` // URLs of the first part, which others may fetch from, too
	Torrents bool     `json:"torrents,omitempty"`  // answer with .torrent files
}

// SearchRequest asks for models by words of their names, families, quants and licences; each must begin a word of these.
type SearchRequest struct {
	Words string `json:"words"`
}

// Listing is what a publisher says of a model, with who holds it. One model may have several.
type Listing struct {
	Model     string     `json:"model"`
	Name      string     `json:"name"`
	Family    string     `json:"family,omitempty"`
	Quant     string     `json:"quant,omitempty"`
	Licence   string     `json:"licence,omitempty"`
	Bytes     int64      `json:"bytes,omitempty"`
	Layers    int        `json:"layers,omitempty"`
	Publisher string     `json:"publisher,omitempty"` // "": nobody lists it, but somebody offers it
	Expires   *time.Time `json:"expires,omitempty"`
	Copies    []int      `json:"copies,omitempty"` // that peers hold of each layer's bytes, and last of all that no layer owns
}

// PullRequest asks to fetch a model's layers.
type PullRequest struct {
	Model   string  `json:"model"` // ID, ID prefix of 6 or more, or unique name; or the first file's URL, hf:OWNER/REPO/FILE.gguf, or a magnet link
	Layers  *Layers `json:"layers,omitempty"`
	Hub     string  `json:"hub,omitempty"`     // base URL for hf:; "": the public one
	Token   string  `json:"token,omitempty"`   // shown to the hub, and to nobody else
	Torrent string  `json:"torrent,omitempty"` // path of a .torrent file, instead of Model
}

// Torrent is how ordinary BitTorrent clients fetch one part of a model.
type Torrent struct {
	Name   string `json:"name"` // for the file
	Magnet string `json:"magnet"`
	Data   []byte `json:"data"` // the .torrent file
}

// Card is what the header of a model tells before there are weights.
type Card struct {
	Name       string      `json:"name"`
	Arch       string      `json:"architecture"`
	Quant      string      `json:"quant"`
	License    string      `json:"license,omitempty"`
	Parameters int64       `json:"parameters"`
	NumLayers  int         `json:"num_layers"`
	Context    int         `json:"context"`
	Parts      int         `json:"parts"` // files
	Bytes      int64       `json:"bytes"`
	LayerBytes []int64     `json:"layer_bytes"`
	Cache      []CacheSize `json:"cache"` // of a session, on a node with all layers, in half precision
}

// CacheSize is the memory that so many tokens of a session take.
type CacheSize struct {
	Tokens int   `json:"tokens"`
	Bytes  int64 `json:"bytes"`
}

// CollectRequest asks what of the fetched models nothing needs.
type CollectRequest struct {
	Model string  `json:"model,omitempty"` // of this one alone; named as in PullRequest
	Keep  *Layers `json:"keep,omitempty"`  // layers of it that must stay, too
	Free  bool    `json:"free,omitempty"`  // free it
}

// CollectReply lists the models of which something can be, or was, freed.
type CollectReply struct {
	Models []Collected `json:"models"`
	Bytes  int64       `json:"bytes"` // of disk, together
}

// Collected is one model of a CollectReply.
type Collected struct {
	ID        string       `json:"id"`
	Name      string       `json:"name"`
	Allocated int64        `json:"allocated_bytes"` // on this disk, before
	Keep      []KeptLayers `json:"keep,omitempty"`
	Free      int64        `json:"free_bytes"`
	Remove    bool         `json:"remove"`            // nothing of it stays
	Problem   string       `json:"problem,omitempty"` // why it was not freed
}

// KeptLayers are layers that stay on the disk.
type KeptLayers struct {
	Layers Layers `json:"layers"`
	Why    string `json:"why"` // "served", "served last", "pinned", …
}

// PinRequest has layers of a model stay on this disk, whatever a collection frees.
type PinRequest struct {
	Model  string  `json:"model"`
	Layers *Layers `json:"layers,omitempty"` // nil: all
	Unpin  bool    `json:"unpin,omitempty"`  // instead: forget all of the model's pins, and what was served last
}

// ServeRequest asks to fetch what is missing of the layers, load and offer them.
type ServeRequest struct {
	Model    string  `json:"model"`
	Layers   *Layers `json:"layers,omitempty"` // nil: all, or where there is no room for them those that the swarm lacks most ("auto")
	All      bool    `json:"all,omitempty"`    // with nil Layers: all, whatever there is room for
	NoDecode bool    `json:"no_decode,omitempty"`
	Draft    string  `json:"draft,omitempty"` // a small model with the same vocabulary that guesses for this one where the node decodes; named like Model
}

// Message is one turn of a chat.
type Message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// ModelRequest asks for a model's description.
type ModelRequest struct {
	Model string `json:"model"` // ID, ID prefix of 6 or more, or unique name; "": the only one known
}

// TokenizeRequest asks for the tokens of a conversation, as the model's chat template writes it, or of a text as it is.
type TokenizeRequest struct {
	Model    string    `json:"model"`
	Messages []Message `json:"messages,omitempty"`
	Text     string    `json:"text,omitempty"`
	Special  bool      `json:"special,omitempty"` // put before the text what the model wants at a beginning
}

// RunRequest asks for an answer. Messages go through the model's chat
// template; Prompt is taken as it is, and so are Tokens.
type RunRequest struct {
	Model    string    `json:"model"`
	Messages []Message `json:"messages,omitempty"`
	Prompt   string    `json:"prompt,omitempty"`
	Tokens   []int32   `json:"tokens,omitempty"`         // the prompt's, instead of its text
	MaxNew   int       `json:"max_new_tokens,omitempty"` // 0: 256; at most what the context leaves
	Sampling
	Stop       []string      `json:"stop,omitempty"`        // texts that end the answer, which is told without: at most 16, of 1 to 1024 bytes
	Fresh      bool          `json:"fresh,omitempty"`       // compute the whole prompt, even where a decoder has the cache of its beginning
	Proof      bool          `json:"proof,omitempty"`       // account with hashes of logits, seams and KV
	Wait       time.Duration `json:"wait_ns,omitempty"`     // for room, where every peer that could answer is busy; 0: fail at once
	Timeline   bool          `json:"timeline,omitempty"`    // account with the times of chunks
	NoGuess    bool          `json:"no_guess,omitempty"`    // every token is computed by itself; changes no token
	PromptOnly bool          `json:"prompt_only,omitempty"` // compute the prompt, for its cache or a probe, and make no token
	Continued  bool          `json:"continued,omitempty"`   // an earlier request has walked the given route: what its decoder still has of it is reused
	Probe      *Probe        `json:"probe,omitempty"`       // tell numbers of the prompt, as events of kind "rows"
	Constraints
}

// Sampling says how tokens are chosen, and what is told of the choice. The zero value takes the likeliest token each time.
type Sampling struct {
	Seed        uint64  `json:"seed"`
	Temperature float32 `json:"temperature"`
	TopK        int     `json:"top_k"`
	TopP        float32 `json:"top_p"`
	MinP        float32 `json:"min_p"`
	// Names and meanings are those of llama.cpp's server; what is absent is 0.
	TypicalP            float32     `json:"typical_p,omitempty"`
	XTCProbability      float32     `json:"xtc_probability,omitempty"`
	XTCThreshold        float32     `json:"xtc_threshold,omitempty"`
	TemperatureRange    float32     `json:"dynatemp_range,omitempty"`
	TemperatureExponent float32     `json:"dynatemp_exponent,omitempty"`
	PenaltyLastN        int         `json:"repeat_last_n,omitempty"` // 0: no penalties, -1: all tokens
	RepetitionPenalty   float32     `json:"repeat_penalty,omitempty"`
	FrequencyPenalty    float32     `json:"frequency_penalty,omitempty"`
	PresencePenalty     float32     `json:"presence_penalty,omitempty"`
	DRYMultiplier       float32     `json:"dry_multiplier,omitempty"`
	DRYBase             float32     `json:"dry_base,omitempty"`
	DRYAllowedLength    int         `json:"dry_allowed_length,omitempty"`
	DRYLastN            int         `json:"dry_penalty_last_n,omitempty"` // 0: no DRY, -1: all tokens
	DRYBreakers         []string    `json:"dry_sequence_breakers,omitempty"`
	LogitBias           []LogitBias `json:"logit_bias,omitempty"`
	Logprobs            int         `json:"logprobs,omitempty"` // tell so many of the likeliest tokens with each token; at most 20
}

// LogitBias changes the logit of a token, or of every token of a text.
type LogitBias struct {
	Token int32   `json:"token,omitempty"`
	Text  string  `json:"text,omitempty"` // if not empty, instead of Token
	Bias  float32 `json:"bias,omitempty"`
	Ban   bool    `json:"ban,omitempty"` // instead of Bias: never choose it
}

// Logprob is a token and the natural logarithm of its probability, by the
// model alone: before temperature and everything else that a request asks for.
type Logprob struct {
	Token   int32   `json:"token"`
	Text    string  `json:"text"`
	Logprob float32 `json:"logprob"`
}

// Probe asks for numbers that positions [First, Last) of a prompt make on their way: the residual stream at boundaries between
// layers, and logits. Boundary l is the stream that layer l reads; that of the model's layer count is what the last layer leaves,
// before the final norm. Both together may be 64 MiB.
type Probe struct {
	First  int   `json:"first"`
	Last   int   `json:"last"`
	Layers []int `json:"layers,omitempty"` // boundaries, ascending
	Logits bool  `json:"logits,omitempty"`
}

// Rows is part of what a Probe asks for: rows of consecutive positions. A boundary's come in ascending order.
type Rows struct {
	Layer  int    `json:"layer"`            // the boundary
	Logits bool   `json:"logits,omitempty"` // instead: [vocabulary] each
	First  int    `json:"first"`            // position
	Count  int    `json:"count"`
	Data   []byte `json:"data"` // [Count][width] float32, little endian
}

// Event is one line of a stream.
type Event struct {
	Kind  string `json:"kind"` // "progress", "card", "plan", "text", "rows", "done", "error"
	Error string `json:"error,omitempty"`
	Cause *Error `json:"cause,omitempty"` // error: the same for programs, where its kind is known

	// progress: Phase says of what ("hash", "header", "pull", "load", "prefill"; "wait" for room,
	// in ms, with who is busy as Text)
	Phase string `json:"phase,omitempty"`
	Done  int64  `json:"done,omitempty"`
	Total int64  `json:"total,omitempty"`

	Card    *Card      `json:"card,omitempty"` // of a pull from a URL
	Plan    *PlanReply `json:"plan,omitempty"`
	Session string     `json:"session,omitempty"` // plan of a run: the ID that the logs of all peers of the run have
	Rows    *Rows      `json:"rows,omitempty"`
	Text    string     `json:"text,omitempty"`  // text: the next piece of the answer, whole runes; may be empty
	Token   int32      `json:"token,omitempty"` // text: the token that completed it; each token has an event
	// text, if asked for: of Token, then of the likeliest ones in order
	Logprobs []Logprob `json:"logprobs,omitempty"`

	Model *Model   `json:"model,omitempty"` // done of model, publish, pull, serve
	Run   *Account `json:"run,omitempty"`   // done of run
}

// Account is what happened in one run.
type Account struct {
	Session       string         `json:"session,omitempty"` // the ID that the logs of all peers of the run have
	Model         string         `json:"model"`
	Reason        string         `json:"finish_reason"`  // "stop", "length"; "prompt" where no token was asked for
	Stop          string         `json:"stop,omitempty"` // the text that ended it
	Text          string         `json:"text"`
	PromptTokens  []int32        `json:"prompt_tokens"`
	Reused        int            `json:"reused_tokens"` // of the prompt, from an earlier session's cache
	NewTokens     []int32        `json:"new_tokens"`    // as sampled, an end token included
	TTFT          time.Duration  `json:"ttft_ns"`       // as the client saw it
	Prefill       time.Duration  `json:"prefill_ns"`    // as the decoder saw it
	Handoff       time.Duration  `json:"handoff_ns"`    // the end of that: from the last seam's arrival to the first token; 0 without stages
	Decode        time.Duration  `json:"decode_ns"`
	DecodeTokensS float64        `json:"decode_tokens_per_s"`
	Guessed       int            `json:"guessed_tokens"`        // whose rows were computed before they were sampled
	Accepted      int            `json:"accepted_tokens"`       // of them were what was sampled
	Switched      int            `json:"switched_at,omitempty"` // position from which the decoder computed alone, as it had got the layers that it lacked; 0: it didn't
	Switch        time.Duration  `json:"switch_ns,omitempty"`   // the longer of the times that the first two tokens after it took
	Decoder       StageAccount   `json:"decoder"`
	Stages        []StageAccount `json:"stages"`
	LogitsHash    string         `json:"logits_hash,omitempty"` // BLAKE3 over the logits of every sampled position
	KVHash        string         `json:"kv_hash,omitempty"`     // over the layers' digests, ascending
	Recovered     []string       `json:"recovered,omitempty"`
	Epoch         string         `json:"epoch"`
	KV            string         `json:"kv"`   // how everybody rounded, as in Constraints: ask so again and the answer is the same
	Seam          string         `json:"seam"` // likewise, with the cuts
}

// StageAccount is what one peer did in one run, and what it waited for meanwhile.
type StageAccount struct {
	Peer       string        `json:"peer"`
	Layers     Layers        `json:"layers"` // Last < First: none but the head
	Tokens     int           `json:"tokens"`
	Chunks     int           `json:"chunks"`
	Compute    time.Duration `json:"compute_ns"`
	WaitInput  time.Duration `json:"wait_input_ns"`  // for the next chunk or seam
	WaitCredit time.Duration `json:"wait_credit_ns"` // for the next stage to take up its seams
	WaitRows   time.Duration `json:"wait_rows_ns"`   // for the decoder to acknowledge its KV; of the decoder: for KV, after the prompt
	TokensS    float64       `json:"tokens_per_s"`
	SeamBytes  int64         `json:"seam_bytes"` // sent
	KVBytes    int64         `json:"kv_bytes"`   // sent
	SeamHash   string        `json:"seam_hash,omitempty"`
	To         string        `json:"to,omitempty"` // who got the seams
	Timeline   []ChunkTimes  `json:"timeline,omitempty"`
}

// ChunkTimes says when things happened to one chunk on one peer, since the
// decoder sent the first chunk, by the decoder's clock; 0 where they didn't. Of
// each peer the first 512 chunks are told. Other peers' times are as they say,
// and off by up to half a round trip.
type ChunkTimes struct {
	Start    int           `json:"start"`    // position
	Count    int           `json:"count"`    // positions
	Ready    time.Duration `json:"ready_ns"` // the input is here: a seam, or tokens
	Began    time.Duration `json:"began_ns"` // computing
	Ended    time.Duration `json:"ended_ns"`
	Pushed   time.Duration `json:"pushed_ns,omitempty"`   // the cache rows have been sent
	Imported time.Duration `json:"imported_ns,omitempty"` // the decoder holds them
}

// DrainRequest says how long the sessions of a node that pauses or ends may go
// on before they are handed over.
type DrainRequest struct {
	Limit *time.Duration `json:"limit_ns,omitempty"` // nil: as the node was started
}

// DrainReply says how a pause began.
type DrainReply struct {
	HandedOver int `json:"handed_over"` // sessions that did not end within the limit
}

// InviteRequest asks the swarm's owner node for a one-use invitation.
type InviteRequest struct {
	Role string        `json:"role,omitempty"`
	TTL  time.Duration `json:"ttl_ns,omitempty"`
}

// MembersReply lists the members of the node's private swarm.
type MembersReply struct {
	Members []Member `json:"members"` // by peer
	All     bool     `json:"all"`     // there are no others: the node is the swarm's only owner. Else: those that the node has let in or met, owners, and the revoked
}

// Member is one member of a private swarm.
type Member struct {
	Peer      string    `json:"peer"`
	Role      string    `json:"role,omitempty"` // "": revoked, and its certificate was never seen here
	Issued    time.Time `json:"issued,omitzero"`
	Expires   time.Time `json:"expires,omitzero"`
	Revoked   bool      `json:"revoked"`
	Owner     bool      `json:"owner"` // made one by the swarm's founder: it invites and revokes, too
	Connected bool      `json:"connected"`
	Self      bool      `json:"self"`
}

// OwnerRequest makes a peer another owner of the swarm, or ends that, on the node with the founder's key.
type OwnerRequest struct {
	Peer   string `json:"peer"`
	Remove bool   `json:"remove,omitempty"`
}

// RevokeRequest ends a peer's membership, on an owner's node.
type RevokeRequest struct {
	Peer string `json:"peer"`
}

// InviteReply carries the invitation's text.
type InviteReply struct {
	Invite string `json:"invite"`
}
