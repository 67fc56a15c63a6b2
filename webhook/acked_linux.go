package webhook

import (
	"net"

	"golang.org/x/sys/unix"
)

// acknowledged returns how many of the bytes written to a connection the other end has acknowledged. False: the kernel does not say.
func acknowledged(conn net.Conn) (bytes int64, known bool) {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return 0, false
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return 0, false
	}
	_ = raw.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.SOL_TCP, unix.TCP_INFO)
		if err == nil && info.Bytes_acked > 0 { // the SYN counts as one: 0 is that of a kernel that does not count
			bytes, known = int64(info.Bytes_acked)-1, true
		}
	})
	return bytes, known
}
