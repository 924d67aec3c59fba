module github.com/anacrolix/go-utp

go 1.22
