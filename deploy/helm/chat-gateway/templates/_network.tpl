{{/* The way to the bus: to its pods if the chart runs it, else by its ports. */}}
{{- define "gateway.busEgress" -}}
- ports:
    {{- range .Values.networkPolicy.busPorts }}
    - { port: {{ . }} }
    {{- end }}
  {{- if .Values.nats.bundled }}
  to:
    - podSelector:
        matchLabels:
          {{- include "gateway.selector" (dict "root" . "service" "nats") | nindent 10 }}
  {{- end }}
{{- end -}}

{{/* The way to the store. */}}
{{- define "gateway.storeEgress" -}}
- ports:
    {{- range .Values.networkPolicy.storePorts }}
    - { port: {{ . }} }
    {{- end }}
  {{- if .Values.redis.bundled }}
  to:
    - podSelector:
        matchLabels:
          {{- include "gateway.selector" (dict "root" . "service" "redis") | nindent 10 }}
  {{- end }}
{{- end -}}

{{/* To the named peers, or everywhere except for the ports of the store. */}}
{{- define "gateway.openEgress" -}}
{{- if .Values.networkPolicy.modelServers -}}
- to:
    {{- toYaml .Values.networkPolicy.modelServers | nindent 4 }}
{{- else -}}
- ports:
    {{- $from := 1 }}
    {{- range .Values.networkPolicy.storePorts }}
    {{- if gt (int .) $from }}
    - { port: {{ $from }}, endPort: {{ sub . 1 }} }
    {{- end }}
    {{- $from = int (add . 1) }}
    {{- end }}
    - { port: {{ $from }}, endPort: 65535 }
{{- end }}
{{- end -}}
