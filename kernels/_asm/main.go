// Command _asm writes the assembly of package kernels, one file per family and instruction set, each with the Go
// declarations of its functions. It is a text generator: Go code computes register numbers, offsets and unrolled loops,
// and prints one instruction a line. Run it by "go generate ./kernels"; its output is committed, and CI compares.
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

// units are the output files without their extension, and who writes them.
var units = []struct {
	name  string
	arch  string
	write func(f *file)
}{
	{"attention_avx2", "amd64", attentionAVX2},
	{"attention_avx512", "amd64", attentionAVX512},
	{"attention_neon", "arm64", attentionNEON},
	{"limits_avx2", "amd64", limitsAVX2},
	{"limits_avx512", "amd64", limitsAVX512},
	{"limits_neon", "arm64", limitsNEON},
	{"limits_vnni", "amd64", limitsVNNI},
	{"dense_avx2", "amd64", denseAVX2},
	{"dense_neon", "arm64", denseNEON},
	{"dense_avx512", "amd64", denseAVX512},
	{"delta_avx2", "amd64", deltaAVX2},
	{"delta_neon", "arm64", deltaNEON},
	{"matmul_avx2", "amd64", matmulAVX2},
	{"matmul_avx512", "amd64", matmulAVX512},
	{"matmul_dotprod", "arm64", matmulDotProd},
	{"matmul_i8mm", "arm64", matmulI8MM},
	{"matmul_neon", "arm64", matmulNEON},
	{"matmul_vnni", "amd64", matmulVNNI},
	{"pack_avx2", "amd64", packAVX2},
	{"store_avx2", "amd64", storeAVX2},
	{"pack_neon", "arm64", packNEON},
	{"quantise_neon", "arm64", quantiseNEON},
	{"rows_neon", "arm64", rowsNEON},
	{"pause", "amd64", pauseAMD64},
	{"pause", "arm64", pauseARM64},
	{"quantise_avx2", "amd64", quantiseAVX2},
	{"rows_avx2", "amd64", rowsAVX2},
}

func main() {
	for _, u := range units {
		f := newFile(u.name, u.arch)
		u.write(f)
		for ext, text := range map[string][]byte{".s": f.assembly(), ".go": f.declarations()} {
			path := filepath.Join("..", u.name+"_"+u.arch+ext)
			if err := os.WriteFile(path, text, 0o644); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
		}
	}
}
