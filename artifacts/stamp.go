package artifacts

import "os"

// stamp is what tells that a file has changed without reading it.
type stamp struct {
	Size  int64  `json:"size"`
	Inode uint64 `json:"inode"` // 0 where the platform has none
	MTime int64  `json:"mtime"` // ns since 1970
}

// stampOf returns the stamp of an open file.
func stampOf(f *os.File) (stamp, error) {
	fi, err := f.Stat()
	if err != nil {
		return stamp{}, err
	}
	return stampInfo(fi), nil
}

func stampInfo(fi os.FileInfo) stamp {
	return stamp{Size: fi.Size(), Inode: inodeOf(fi), MTime: fi.ModTime().UnixNano()}
}
