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
      activeDeadlineSeconds: {{ .job.deadlineSeconds }}
      template:
        metadata:
          labels:
            {{- include "tocsin.labels" .root | nindent 12 }}
            app.kubernetes.io/component: {{ .name }}
        spec:
          restartPolicy: Never
          automountServiceAccountToken: false
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
                    name: {{ .secret }}
              securityContext:
                {{- include "tocsin.containerSecurity" .root | nindent 16 }}
              resources:
                {{- toYaml .root.Values.jobs.resources | nindent 16 }}
              volumeMounts:
                {{- include "tocsin.mounts" .root | nindent 16 }}
          volumes:
            {{- include "tocsin.volumes" .root | nindent 12 }}
{{- end }}
