package dashboards

// Unused names each metric that no dashboard and no rule of deploy/prometheus uses, with the reason. There is none at present.
var Unused = map[string]string{}
