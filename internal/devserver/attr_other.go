//go:build !linux

package devserver

import "syscall"

// childAttr is empty where the kernel knows no parent-death signal: the child outlives a parent that is killed -9.
func childAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{} }
