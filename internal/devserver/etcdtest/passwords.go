// Package etcdtest prepares an etcd for tests of who may do what there. It stands apart from package devtest, so that
// tests which use no etcd don't need its client: the tests of the root package put all that they import into the go.sum
// of every program that adds tasks.
package etcdtest

import (
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// WantPasswords has an etcd ask for a user and a password from here on. There is "root", and for each cluster a user of
// its name, who may touch the keys below "/{cluster}/" alone, and a user "{cluster}-reader", who may only read them. The password of a
// user is "pass-" and the name.
func WantPasswords(tb testing.TB, client *clientv3.Client, clusters ...string) {
	tb.Helper()
	must := func(_ any, err error) {
		tb.Helper()
		if err != nil {
			tb.Fatal(err)
		}
	}
	ctx := tb.Context()
	must(client.UserAdd(ctx, "root", "pass-root"))
	must(client.UserGrantRole(ctx, "root", "root"))
	for _, cluster := range clusters {
		from := "/" + cluster + "/"
		for user, may := range map[string]clientv3.PermissionType{
			cluster: clientv3.PermissionType(clientv3.PermReadWrite), cluster + "-reader": clientv3.PermissionType(clientv3.PermRead),
		} {
			must(client.RoleAdd(ctx, user))
			must(client.RoleGrantPermission(ctx, user, from, clientv3.GetPrefixRangeEnd(from), may))
			must(client.UserAdd(ctx, user, "pass-"+user))
			must(client.UserGrantRole(ctx, user, user))
		}
	}
	must(client.AuthEnable(ctx))
}
