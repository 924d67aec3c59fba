module github.com/starling-swarm/starling/kernels/_asm

go 1.26
