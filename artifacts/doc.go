// Package artifacts knows what bytes a model is, who has them and whether they are right.
//
// A model is one GGUF file or all parts of a split one, unchanged. Its [ID] is a SHA-256 over the
// sizes and BEP 52 Merkle roots of its parts; a [Manifest] is what that hash covers plus one hash
// per piece, so that any byte range can be proved alone. A [Card] is what the GGUF header tells:
// layers, costs, and which byte ranges ([Span]) a range of layers needs.
//
// A [Store] keeps models on disk, whole or in part, and remembers which pieces were verified.
// [Torrents] moves pieces between stores by BitTorrent, over connections that its user provides:
// for that it opens no socket and asks no tracker. If its user wants, it also fetches from web seeds
// and ordinary BitTorrent clients, and seeds to these. A [Remote] is a model on a web server that
// nobody may have made a manifest of yet. Every piece is checked against the manifest's SHA-256
// tree before it is recorded, served or handed to anyone.
//
// docs/manifest.md has the formats byte by byte, docs/artifacts.md what is asked when and why.
package artifacts
