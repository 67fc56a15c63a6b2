module github.com/tocsinhq/tocsin/internal/dashboards

go 1.26.0

require (
	github.com/goccy/go-yaml v1.19.2
	github.com/grafana/grafana-foundation-sdk/go v0.0.18
)
