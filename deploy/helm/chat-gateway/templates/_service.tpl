{{/*
The Deployment of a service: dict "root" $, "service" its image, "settings" its values,
"variables" what it needs besides, "passwords" the files of the Secret that it may see,
"port" where it is called (0: nowhere), "store" whether it uses Redis, "models" whether
it calls model servers.
*/}}
{{- define "gateway.deployment" -}}
{{- $root := .root -}}
{{- $name := include "gateway.name" $root -}}
{{- $models := include "gateway.modelsConfigMap" $root -}}
{{- $isScaled := or .settings.autoscaling.enabled .settings.autoscaling.kind -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  {{- include "gateway.metadata" . | nindent 2 }}
spec:
  {{- if not $isScaled }}
  replicas: {{ .settings.replicas }}
  {{- end }}
  revisionHistoryLimit: 5
  # A new pod is there before an old one goes.
  strategy: { type: RollingUpdate, rollingUpdate: { maxSurge: 1, maxUnavailable: 0 } }
  selector:
    matchLabels:
      {{- include "gateway.selector" . | nindent 6 }}
  template:
    metadata:
      labels:
        {{- include "gateway.podLabels" . | nindent 8 }}
      {{- with .settings.podAnnotations }}
      annotations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
    spec:
      {{- with $root.Values.imagePullSecrets }}
      imagePullSecrets:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- include "gateway.podSecurity" (dict "uid" 10001) | nindent 6 }}
      terminationGracePeriodSeconds: {{ include "gateway.grace" . }}
      {{- include "gateway.placement" . | nindent 6 }}
      containers:
        - name: {{ .service }}
          image: {{ include "gateway.image" . }}
          imagePullPolicy: {{ $root.Values.image.pullPolicy }}
          {{- include "gateway.containerSecurity" . | nindent 10 }}
          ports:
            {{- if .port }}
            - { name: http, containerPort: {{ .port }} }
            {{- end }}
            - { name: ops, containerPort: 9090 }
          env:
            {{- include "gateway.env" .variables | nindent 12 }}
            {{- if .nats }}
            {{- include "gateway.env" (dict "NATS_URL" (include "gateway.natsUrl" $root) "NATS_USER" .service "NATS_PASSWORD_FILE" (printf "/run/secrets/gateway/%s" .nats)) | nindent 12 }}
            {{- if $root.Values.nats.tlsSecret }}
            {{- include "gateway.tlsEnv" (dict "store" "nats" "settings" $root.Values.nats) | nindent 12 }}
            {{- end }}
            {{- end }}
            {{- if .redis }}
            {{- include "gateway.redisEnv" . | nindent 12 }}
            {{- end }}
            {{- if $models }}
            - { name: MODELS_FILE, value: /etc/gateway/models.json }
            {{- else if $root.Values.simulator.enabled }}
            - { name: MODEL_SIMULATOR_URL, value: "http://{{ $name }}-model-simulator:8090/v1" }
            {{- end }}
            {{- with $root.Values.models.currency }}
            - { name: CURRENCY, value: {{ . | quote }} }
            {{- end }}
            {{- if and .models $root.Values.models.keysSecret }}
            - { name: MODEL_KEYS_DIR, value: /run/secrets/model_keys }
            {{- end }}
            - { name: DRAIN_SECONDS, value: {{ .settings.drainSeconds | quote }} }
            {{- include "gateway.env" .settings.env | nindent 12 }}
            {{- with .extraEnv }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
          {{- include "gateway.probes" . | nindent 10 }}
          {{- if .settings.preStopSeconds }}
          # Until then, endpoints and proxies have heard that the pod leaves.
          lifecycle: { preStop: { sleep: { seconds: {{ .settings.preStopSeconds }} } } }
          {{- end }}
          resources:
            {{- toYaml .settings.resources | nindent 12 }}
          volumeMounts:
            - { name: tmp, mountPath: /tmp }
            {{- if or .nats .redis }}
            - { name: passwords, mountPath: /run/secrets/gateway, readOnly: true }
            {{- end }}
            {{- if $models }}
            - { name: models, mountPath: /etc/gateway, readOnly: true }
            {{- end }}
            {{- if and .models $root.Values.models.keysSecret }}
            - { name: model-keys, mountPath: /run/secrets/model_keys, readOnly: true }
            {{- end }}
            {{- if and .nats $root.Values.nats.tlsSecret }}
            - { name: nats-tls, mountPath: /run/secrets/nats-tls, readOnly: true }
            {{- end }}
            {{- if and .redis $root.Values.redis.tlsSecret }}
            - { name: redis-tls, mountPath: /run/secrets/redis-tls, readOnly: true }
            {{- end }}
      volumes:
        - { name: tmp, emptyDir: { medium: Memory, sizeLimit: 16Mi } }
        {{- if or .nats .redis }}
        - name: passwords
          secret:
            secretName: {{ include "gateway.secret" $root }}
            items:
              {{- range compact (list .nats .redis) }}
              - { key: {{ . }}, path: {{ . }} }
              {{- end }}
              {{- if and .redis $root.Values.redis.sentinels $root.Values.redis.sentinelUsername }}
              - { key: redis_lookup_password, path: redis_lookup_password }
              {{- end }}
        {{- end }}
        {{- if $models }}
        - { name: models, configMap: { name: {{ $models }} } }
        {{- end }}
        {{- if and .models $root.Values.models.keysSecret }}
        - { name: model-keys, secret: { secretName: {{ $root.Values.models.keysSecret }} } }
        {{- end }}
        {{- if and .nats $root.Values.nats.tlsSecret }}
        - { name: nats-tls, secret: { secretName: {{ $root.Values.nats.tlsSecret }} } }
        {{- end }}
        {{- if and .redis $root.Values.redis.tlsSecret }}
        - { name: redis-tls, secret: { secretName: {{ $root.Values.redis.tlsSecret }} } }
        {{- end }}
{{- end -}}

{{/* Neither liveness nor the readiness of an edge looks at Redis or NATS. */}}
{{- define "gateway.probes" -}}
startupProbe:
  httpGet: { path: /healthz, port: ops }
  periodSeconds: 2
  failureThreshold: 60
livenessProbe:
  httpGet: { path: /healthz, port: ops }
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet: { path: /readyz, port: ops }
  periodSeconds: 2
  timeoutSeconds: 3
  failureThreshold: 2
{{- end -}}

{{- define "gateway.redisEnv" -}}
{{- $redis := .root.Values.redis -}}
- { name: REDIS_USERNAME, value: {{ .service }} }
- { name: REDIS_PASSWORD_FILE, value: /run/secrets/gateway/{{ .redis }} }
{{- if $redis.bundled }}
- { name: REDIS_URL, value: "redis://{{ include "gateway.name" .root }}-redis:6379" }
{{- else if $redis.sentinels }}
- { name: REDIS_SENTINELS, value: {{ join "," $redis.sentinels | quote }} }
- { name: REDIS_SENTINEL_NAME, value: {{ required "redis.sentinelName: what is the master called?" $redis.sentinelName | quote }} }
{{- if $redis.url }}
- { name: REDIS_URL, value: {{ $redis.url | quote }} }
{{- end }}
{{- else }}
- { name: REDIS_URL, value: {{ required "redis.url: which server? Or redis.bundled=true for a trial" $redis.url | quote }} }
{{- end }}
{{- if and $redis.sentinels $redis.sentinelUsername }}
- { name: REDIS_SENTINEL_USERNAME, value: {{ $redis.sentinelUsername | quote }} }
- { name: REDIS_SENTINEL_PASSWORD_FILE, value: /run/secrets/gateway/redis_lookup_password }
{{- end }}
{{- if $redis.tlsSecret }}
{{ include "gateway.tlsEnv" (dict "store" "redis" "settings" $redis) }}
{{- end }}
{{- end -}}

{{/* The certificates of a store: dict "store" nats or redis, "settings" its values. */}}
{{- define "gateway.tlsEnv" -}}
{{- $files := dict "CA" "ca.crt" -}}
{{- if .settings.clientCertificate -}}
{{- $files = dict "CA" "ca.crt" "CERT" "tls.crt" "KEY" "tls.key" -}}
{{- end -}}
{{- range $kind, $file := $files }}
- { name: {{ upper $.store }}_{{ $kind }}_FILE, value: /run/secrets/{{ $.store }}-tls/{{ $file }} }
{{- end }}
{{- end -}}

{{/* A Service that leads to the port `http` of the pods. */}}
{{- define "gateway.service" -}}
apiVersion: v1
kind: Service
metadata:
  {{- include "gateway.metadata" . | nindent 2 }}
  {{- with .settings.service.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  type: {{ .settings.service.type }}
  selector:
    {{- include "gateway.selector" . | nindent 4 }}
  ports:
    - { name: http, port: {{ .settings.service.port }}, targetPort: http }
{{- end -}}

{{/*
At most one pod at a time may be evicted, where there is more than one. One that is not
ready may always: otherwise a broken upgrade would hold up the drain of every node.
*/}}
{{- define "gateway.pdb" -}}
{{- $auto := .settings.autoscaling | default dict -}}
{{- $isScaled := or $auto.enabled $auto.kind -}}
{{- $replicas := ternary $auto.minReplicas .settings.replicas (not (not $isScaled)) -}}
{{- if and .root.Values.podDisruptionBudget.enabled (gt (int $replicas) 1) -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  {{- include "gateway.metadata" . | nindent 2 }}
spec:
  maxUnavailable: 1
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      {{- include "gateway.selector" . | nindent 6 }}
{{- end -}}
{{- end -}}

{{/*
Scales workers by the share of their slots that running requests use, with those that
wait at edges for one. Both are one sum: of two metrics, an autoscaler takes the one that
wants more pods, and what waits would add nothing to workers that are full.
*/}}
{{- define "gateway.workerScaling" -}}
{{- $auto := .settings.autoscaling -}}
{{- $name := include "gateway.name" .root -}}
{{- $target := div (mul .settings.slots $auto.slotsPercent) 100 -}}
{{- $family := trimSuffix "-worker" .service -}}
{{- if eq $auto.kind "keda" -}}
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata:
  {{- include "gateway.metadata" . | nindent 2 }}
spec:
  scaleTargetRef: { name: {{ $name }}-{{ .service }} }
  minReplicaCount: {{ $auto.minReplicas }}
  maxReplicaCount: {{ $auto.maxReplicas }}
  # Without an answer of Prometheus, as many as there would be without scaling.
  fallback: { failureThreshold: 3, replicas: {{ max .settings.replicas $auto.minReplicas }} }
  advanced:
    horizontalPodAutoscalerConfig:
      behavior:
        {{- include "gateway.scaleDown" . | nindent 8 }}
  triggers:
    - type: prometheus
      metricType: AverageValue
      metadata:
        serverAddress: {{ $auto.prometheusUrl | quote }}
        # Running requests, and those that wait at edges for a slot.
        query: >-
          sum(gateway_worker_in_flight{namespace="{{ .root.Release.Namespace }}",pod=~"{{ $name }}-{{ .service }}-.*"})
          + (sum(gateway_queue_waiting{namespace="{{ .root.Release.Namespace }}",family="{{ $family }}"}) or vector(0))
        threshold: {{ $target | quote }}
{{- else if eq $auto.kind "hpa" -}}
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  {{- include "gateway.metadata" . | nindent 2 }}
spec:
  scaleTargetRef: { apiVersion: apps/v1, kind: Deployment, name: {{ $name }}-{{ .service }} }
  minReplicas: {{ $auto.minReplicas }}
  maxReplicas: {{ $auto.maxReplicas }}
  behavior:
    {{- include "gateway.scaleDown" . | nindent 4 }}
  metrics:
    # The same sum, as an adapter serves it: beside/prometheus-adapter.yaml.
    - type: External
      external:
        metric: { name: gateway_{{ $family }}_load }
        target: { type: AverageValue, averageValue: {{ $target | quote }} }
{{- else if $auto.kind -}}
{{- fail (printf "%s: autoscaling.kind is %q, expected keda, hpa or nothing" .service $auto.kind) -}}
{{- end -}}
{{- end -}}

{{/* A pod that goes takes as long as its answers: not before the load has been low for that time. */}}
{{- define "gateway.scaleDown" -}}
scaleDown:
  stabilizationWindowSeconds: {{ min 3600 (max 300 .settings.drainSeconds) }}
  policies: [{ type: Pods, value: 1, periodSeconds: 60 }]
{{- end -}}
