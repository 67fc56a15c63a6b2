// Package config reads the YAML file of a cluster, and is the authority for its
// keys, their defaults and their bounds. configs/dev.yaml and
// configs/production.yaml explain every key.
//
//	tocsin.yaml --+--> Tocsin       servers and layout, for every package
//	environment --+--> NodeConfig   a node or a sweeper, with etcd and the outboxes
//	              +--> EtcdConfig   where nodes register
//	              +--> Purge, Log
//
// Secrets come from the environment: ${NAME} stands for a variable inside a dsn
// and as the whole of etcd's username and password, and password_env names one
// that holds just the password.
//
// On failure nothing of a file is used. Each mistake is one line with its place,
// tocsin.yaml:12: unknown key "tabels", and no message ever holds a secret.
package config
