{{- define "image" -}}
{{- $v := .root.Values.image -}}
{{- if $v.registry }}{{ $v.registry }}/{{ end }}{{ .name }}:{{ $v.tag | default .root.Chart.AppVersion }}
{{- end -}}

{{- /* The two programs look into kube-system unless they are told otherwise. */ -}}
{{- define "namespaceFlag" -}}
{{- if ne .Release.Namespace "kube-system" }}
- --namespace={{ .Release.Namespace }}
{{- end }}
{{- end -}}

{{- define "pullSecrets" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
{{- range . }}
- name: {{ . }}
{{- end }}
{{- end }}
{{- end -}}

