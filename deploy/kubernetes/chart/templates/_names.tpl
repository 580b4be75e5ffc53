{{- define "unpaced.labels" -}}
app.kubernetes.io/name: {{ .Release.Name }}
{{- end }}
