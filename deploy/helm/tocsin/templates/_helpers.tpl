{{- define "tocsin.labels" -}}
app.kubernetes.io/name: tocsin
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "tocsin.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "tocsin.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "tocsin.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{- /* Tocsin does not call Kubernetes: no pod gets a token. */ -}}
{{- define "tocsin.account" -}}
automountServiceAccountToken: false
{{- with .Values.serviceAccountName }}
serviceAccountName: {{ . | quote }}
{{- end }}
{{- end }}

{{- /* A duration of the config, such as 1m30s, in whole seconds, rounded up. As in the config, none and 0s are the default. */ -}}
{{- define "tocsin.seconds" -}}
{{- $epoch := mustToDate "2006-01-02" "2000-01-01" -}}
{{- $seconds := sub (mustDateModify (.value | default "0s") $epoch | mustDateModify "999ms" | unixEpoch) (unixEpoch $epoch) | default .default | int64 -}}
{{- if gt $seconds (int64 .most) -}}
{{- fail (printf "%s %s: use 1s to %ds" .key .value .most) -}}
{{- end -}}
{{- $seconds -}}
{{- end }}

{{- define "tocsin.drain" -}}
{{- $node := .Values.config.node | default dict -}}
{{- include "tocsin.seconds" (dict "key" "config.node.drain_timeout" "value" $node.drain_timeout "default" 30 "most" 3600) -}}
{{- end }}

{{- define "tocsin.sweepTimeout" -}}
{{- $sweep := .Values.config.sweep | default dict -}}
{{- include "tocsin.seconds" (dict "key" "config.sweep.timeout" "value" $sweep.timeout "default" 50 "most" 86400) -}}
{{- end }}

{{- /* Seconds between two runs of a cron expression at least; more than any sweep may take if only Kubernetes can tell. */ -}}
{{- define "tocsin.between" -}}
{{- $minute := first (splitList " " .) -}}
{{- if eq $minute "*" -}}
60
{{- else if regexMatch "^\\*/[1-9][0-9]*$" $minute -}}
{{- $step := trimPrefix "*/" $minute -}}
{{- mul 60 (mod 60 $step | default $step) -}}
{{- else if or (eq $minute "@hourly") (regexMatch "^[0-9]+$" $minute) -}}
3600
{{- else -}}
100000
{{- end -}}
{{- end }}

{{- /* Empty, or "s" if the status page has TLS. */ -}}
{{- define "tocsin.tls" -}}
{{- if dig "status" "tls" "cert" "" (.Values.config.node | default dict) }}s{{ end -}}
{{- end }}

{{- define "tocsin.mounts" -}}
- name: config
  mountPath: /etc/tocsin
  readOnly: true
{{- if .Values.secrets.callbacks }}
- name: callbacks
  mountPath: /var/run/tocsin/callbacks
  readOnly: true
{{- end }}
{{- if .Values.secrets.status }}
- name: status
  mountPath: /var/run/tocsin/status
  readOnly: true
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "tocsin.volumes" -}}
- name: config
  configMap:
    name: {{ .Release.Name }}-config
{{- if .Values.secrets.callbacks }}
- name: callbacks
  secret:
    secretName: {{ .Values.secrets.callbacks }}
{{- end }}
{{- if .Values.secrets.status }}
- name: status
  secret:
    secretName: {{ .Values.secrets.status }}
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* The secrets of the API are mounted into nodes alone, as directories, so that a change arrives. */ -}}
{{- define "tocsin.apiMounts" -}}
{{- if .Values.api.enabled }}
- name: api
  mountPath: /var/run/tocsin/api
  readOnly: true
{{- if .Values.secrets.apiTLS }}
- name: api-tls
  mountPath: /var/run/tocsin/api-tls
  readOnly: true
{{- end }}
{{- end }}
{{- end }}

{{- define "tocsin.apiVolumes" -}}
{{- if .Values.api.enabled }}
- name: api
  secret:
    secretName: {{ .Values.secrets.apiTokens }}
{{- if .Values.secrets.apiTLS }}
- name: api-tls
  secret:
    secretName: {{ .Values.secrets.apiTLS }}
{{- end }}
{{- end }}
{{- end }}

{{- define "tocsin.job" -}}
apiVersion: batch/v1
kind: CronJob
metadata:
  name: {{ .root.Release.Name }}-{{ .name }}
  labels:
    {{- include "tocsin.labels" .root | nindent 4 }}
    app.kubernetes.io/component: {{ .name }}
spec:
  schedule: {{ .job.schedule | quote }}
  concurrencyPolicy: Forbid
  startingDeadlineSeconds: 300
  successfulJobsHistoryLimit: 1
  failedJobsHistoryLimit: 3
  jobTemplate:
    spec:
      backoffLimit: 0
      activeDeadlineSeconds: {{ int64 (.job.deadlineSeconds | default .deadline) }}
      template:
        metadata:
          labels:
            {{- include "tocsin.labels" .root | nindent 12 }}
            app.kubernetes.io/component: {{ .name }}
        spec:
          restartPolicy: Never
          {{- include "tocsin.account" .root | nindent 10 }}
          securityContext:
            {{- include "tocsin.podSecurity" .root | nindent 12 }}
          {{- with .root.Values.imagePullSecrets }}
          imagePullSecrets:
            {{- toYaml . | nindent 12 }}
          {{- end }}
          containers:
            - name: {{ .name }}
              image: {{ include "tocsin.image" .root | quote }}
              imagePullPolicy: {{ .root.Values.image.pullPolicy }}
              args: [{{ .args }}{{ with .root.Values.jobs.pushgateway }}, --push, {{ . | quote }}{{ end }}]
              envFrom:
                - secretRef:
                    name: {{ get .root.Values.secrets .role | required (printf "secrets.%s is empty: name the Secret of the job %s, or disable it" .role .name) }}
              securityContext:
                {{- include "tocsin.containerSecurity" .root | nindent 16 }}
              resources:
                {{- toYaml .root.Values.jobs.resources | nindent 16 }}
              volumeMounts:
                {{- include "tocsin.mounts" .root | nindent 16 }}
          volumes:
            {{- include "tocsin.volumes" .root | nindent 12 }}
{{- end }}
