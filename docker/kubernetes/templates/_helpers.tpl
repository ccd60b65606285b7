{{- define "leveret.name" -}}
{{- if contains "leveret" .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-leveret" .Release.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "leveret.selector" -}}
app.kubernetes.io/name: leveret
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "leveret.labels" -}}
{{ include "leveret.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "leveret.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- /* A random text that stays the same over upgrades: of a Secret, key, and length. */}}
{{- define "leveret.random" -}}
{{- $found := lookup "v1" "Secret" .namespace .name }}
{{- if $found }}{{ index $found.data .key }}{{ else }}{{ randAlphaNum .length | b64enc }}{{ end }}
{{- end }}

{{- define "leveret.security" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{- define "leveret.ports" -}}
- { name: amqp, port: 5672, targetPort: amqp }
- { name: http, port: 15672, targetPort: http }
{{- end }}
