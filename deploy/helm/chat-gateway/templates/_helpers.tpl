{{/* The name of the release, by which its objects are called. */}}
{{- define "gateway.name" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* The labels that select the pods of a service: dict "root" $ "service" name. */}}
{{- define "gateway.selector" -}}
app.kubernetes.io/name: {{ .root.Chart.Name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .service }}
{{- end -}}

{{- define "gateway.labels" -}}
{{ include "gateway.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end -}}

{{/* The labels of pods: without the version of the chart, which would restart them. */}}
{{- define "gateway.podLabels" -}}
{{ include "gateway.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
{{- end -}}

{{/* The metadata of an object of a service. */}}
{{- define "gateway.metadata" -}}
name: {{ include "gateway.name" .root }}-{{ .service }}
namespace: {{ .root.Release.Namespace }}
labels:
  {{- include "gateway.labels" . | nindent 2 }}
{{- end -}}

{{- define "gateway.image" -}}
{{- $image := .root.Values.image -}}
{{ printf "%s/%s:%s" $image.registry .service (default .root.Chart.AppVersion $image.tag) }}
{{- end -}}

{{/* How long a pod may take to stop: what it needs, if that is not set. */}}
{{- define "gateway.grace" -}}
{{- $needed := add .settings.preStopSeconds (.settings.drainLeadSeconds | default 0) .settings.drainSeconds -}}
{{- $grace := int .settings.terminationGracePeriodSeconds -}}
{{- if eq $grace 0 -}}
{{ add $needed 10 }}
{{- else if le $grace (int $needed) -}}
{{ fail (printf "%s: terminationGracePeriodSeconds is %d, but stopping may take %d seconds (preStopSeconds, drainLeadSeconds and drainSeconds): answers would be cut off" .service $grace (int $needed)) }}
{{- else -}}
{{ $grace }}
{{- end -}}
{{- end -}}

{{- define "gateway.natsUrl" -}}
{{- if .Values.nats.bundled -}}
nats://{{ include "gateway.name" . }}-nats:4222
{{- else -}}
{{ required "nats.url: which servers? Or nats.bundled=true for a trial" .Values.nats.url }}
{{- end -}}
{{- end -}}

{{- define "gateway.secret" -}}
{{ required "secrets.existingSecret: the Secret with the passwords that deploy/secrets.sh makes; there are no default passwords" .Values.secrets.existingSecret }}
{{- end -}}

{{- define "gateway.modelsConfigMap" -}}
{{- if .Values.models.existingConfigMap -}}
{{ .Values.models.existingConfigMap }}
{{- else if .Values.models.inline -}}
{{ include "gateway.name" . }}-models
{{- end -}}
{{- end -}}

{{/* A restricted pod: no privileges, no token, no writable file besides /tmp. */}}
{{- define "gateway.podSecurity" -}}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: {{ .uid }}
  runAsGroup: {{ .uid }}
  fsGroup: {{ .uid }}
  seccompProfile: { type: RuntimeDefault }
{{- end -}}

{{- define "gateway.containerSecurity" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: { drop: [ALL] }
{{- end -}}

{{/* Where pods may run. Without a rule for nodes, two edges of a zone may share one. */}}
{{- define "gateway.placement" -}}
{{- if .root.Values.topologySpread.enabled }}
topologySpreadConstraints:
  {{- range $key := uniq (list .root.Values.topologySpread.key "kubernetes.io/hostname") }}
  - maxSkew: 1
    topologyKey: {{ $key }}
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "gateway.selector" $ | nindent 8 }}
    # In a rollout, the old pods do not count.
    matchLabelKeys: [pod-template-hash]
  {{- end }}
{{- end }}
{{- with .settings.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .settings.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .settings.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Text values of a map as variables of a container. */}}
{{- define "gateway.env" -}}
{{- range $name, $value := . }}
- { name: {{ $name }}, value: {{ $value | toString | quote }} }
{{- end }}
{{- end -}}
