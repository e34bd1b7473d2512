{{- define "penstock.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "penstock.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else if contains (include "penstock.name" .) .Release.Name }}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "penstock.name" .) | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "penstock.selectorLabels" -}}
app.kubernetes.io/name: {{ include "penstock.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "penstock.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "penstock.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "penstock.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "penstock.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "penstock.resources" -}}
{{- $full := eq .Values.image.variant "full" }}
{{- $memory := ternary (list "1Gi" "2Gi") (list "256Mi" "1Gi") $full }}
{{- $requests := dict "cpu" (ternary "250m" "100m" $full) "memory" (first $memory) }}
{{- toYaml (default (dict "requests" $requests "limits" (dict "memory" (last $memory))) .Values.resources) }}
{{- end }}

{{- define "penstock.image" -}}
{{- $image := .Values.image }}
{{- if $image.digest }}
{{- printf "%s@%s" $image.repository $image.digest }}
{{- else }}
{{- $tag := ternary (printf "%s-full" .Chart.AppVersion) .Chart.AppVersion (eq $image.variant "full") }}
{{- printf "%s:%s" $image.repository (default $tag $image.tag) }}
{{- end }}
{{- end }}

{{- /* The most pods that may run at a time, as text. */ -}}
{{- define "penstock.maxReplicas" -}}
{{- if .Values.autoscaling.enabled }}{{ .Values.autoscaling.maxReplicas | int }}{{ else }}{{ .Values.replicaCount | int }}{{ end }}
{{- end }}

{{- /* How fast pods leave, for the autoscaler of either kind. */ -}}
{{- define "penstock.scaleDown" -}}
behavior:
  scaleDown:
    stabilizationWindowSeconds: {{ int .Values.autoscaling.scaleDownStabilization }}
    policies:
      - type: Pods
        value: 1
        periodSeconds: 60
{{- end }}

{{- /* Seconds that a pod takes to end if the slowest stream takes all its time, as text. */ -}}
{{- define "penstock.leastGrace" -}}
{{- $server := .Values.config.server | default dict }}
{{- add (int .Values.preStopSeconds) (int (default 0 $server.drain_delay)) (int .Values.drainSeconds) }}
{{- end }}

{{- /* Seconds that a pod may take to end, as text. */ -}}
{{- define "penstock.grace" -}}
{{- $least := include "penstock.leastGrace" . | int }}
{{- if kindIs "invalid" .Values.terminationGracePeriodSeconds }}
{{- add $least 20 }}
{{- else }}
{{- int .Values.terminationGracePeriodSeconds }}
{{- end }}
{{- end }}

{{- /* Refuses a secret in plain text; of a list: the place, its text, and whether that is an address. */ -}}
{{- define "penstock.noSecret" -}}
{{- $place := index . 0 }}
{{- $plain := regexReplaceAll `\$\{(file:[^}]*|[A-Za-z_][A-Za-z0-9_]*(:-)?)\}` (index . 1 | default "") "" }}
{{- if index . 2 }}
{{- $plain = regexFind `^[^/]*://[^/?#]*:[^@]+@` $plain }}
{{- end }}
{{- if $plain }}
{{- fail (printf "%s has a secret in plain text, which would stand in a ConfigMap: put it into existingSecret or secrets, and write ${NAME} in its place" $place) }}
{{- end }}
{{- end }}

{{- /* What must not stand in a ConfigMap. */ -}}
{{- define "penstock.noSecrets" -}}
{{- include "penstock.noSecret" (list "state.url" .Values.state.url true) }}
{{- include "penstock.noSecret" (list "state.settings.password" .Values.state.settings.password false) }}
{{- include "penstock.noSecret" (list "vectors.url" .Values.vectors.url true) }}
{{- include "penstock.noSecret" (list "vectors.settings.api_key" .Values.vectors.settings.api_key false) }}
{{- with .Values.config.embedding }}
{{- include "penstock.noSecret" (list "config.embedding.api_key" .api_key false) }}
{{- end }}
{{- range $name, $upstream := .Values.config.upstreams }}
{{- include "penstock.noSecret" (list (printf "config.upstreams.%s.api_key" $name) $upstream.api_key false) }}
{{- end }}
{{- end }}

{{- /* What a schema cannot say. Every template of which something depends on it includes this. */ -}}
{{- define "penstock.validate" -}}
{{- $values := .Values }}
{{- $shared := eq $values.state.kind "redis" }}
{{- if and (gt (include "penstock.maxReplicas" . | int) 1) (not $shared) }}
{{- fail (printf "%s replicas need a state that they share: set state.kind to redis and state.url, or run one replica (state.kind is %s)" (include "penstock.maxReplicas" .) $values.state.kind) }}
{{- end }}
{{- if and (gt (int $values.workers) 1) (eq $values.state.kind "memory") }}
{{- fail "several workers need a state that they share: set state.kind to disk or redis" }}
{{- end }}
{{- if and $shared (not $values.state.url) (not $values.existingConfigMap) }}
{{- fail "state.kind redis needs state.url, such as redis://valkey:6379/0" }}
{{- end }}
{{- if and $values.state.url (not $shared) }}
{{- fail (printf "state.url is for state.kind redis, which is %s" $values.state.kind) }}
{{- end }}
{{- $given := $values.config.server | default dict }}
{{- range $key, $value := dict "host" "nothing: it is 0.0.0.0" "port" "service.port" "admin_port" "admin.port" "admin_key" "admin.key" "drain" "drainSeconds" "watch" "hotReload" }}
{{- if hasKey $given $key }}
{{- fail (printf "config.server.%s is set by the chart; use %s" $key $value) }}
{{- end }}
{{- end }}
{{- range list "state" "vectors" }}
{{- if hasKey $values.config . }}
{{- fail (printf "config.%s is set by the chart; use the value %s" . .) }}
{{- end }}
{{- end }}
{{- if not $values.config.default_upstream }}
{{- fail "config.default_upstream must name one of config.upstreams: Helm sorts them, so that the first is none of your choice" }}
{{- end }}
{{- if hasKey $values.extraFiles "config.yaml" }}
{{- fail "extraFiles must not have a config.yaml; that is what config is for" }}
{{- end }}
{{- if and $values.admin.enabled (eq (int $values.admin.port) (int $values.service.port)) }}
{{- fail "admin.port and service.port must differ" }}
{{- end }}
{{- $auth := $values.config.auth | default dict }}
{{- if and $values.metrics.serviceMonitor.enabled (not $values.admin.enabled) (not $values.admin.key) (eq (default "" $auth.kind) "keys") }}
{{- fail "metrics.serviceMonitor needs admin.enabled or admin.key where config.auth.kind is keys: metrics are not for clients" }}
{{- end }}
{{- if le (include "penstock.grace" . | int) (include "penstock.leastGrace" . | int) }}
{{- fail "terminationGracePeriodSeconds must be longer than preStopSeconds and drainSeconds together, or streams break" }}
{{- end }}
{{- if and $values.secrets $values.existingSecret }}
{{- fail "secrets and existingSecret exclude each other" }}
{{- end }}
{{- include "penstock.noSecrets" . }}
{{- end }}

{{- /* The sections of config.yaml that are the chart's. */ -}}
{{- define "penstock.ownConfig" -}}
{{- $server := dict "host" "0.0.0.0" "port" (int .Values.service.port) "drain" (int .Values.drainSeconds) "warm" (dig "server" "warm" true .Values.config) }}
{{- /* other names than these could be a web page's; those without a dot need no mention */ -}}
{{- $hosts := concat (list "*.svc" "*.svc.cluster.local") ((.Values.config.server | default dict).hosts | default list) }}
{{- if .Values.ingress.enabled }}
{{- range .Values.ingress.hosts }}
{{- $hosts = append $hosts .host }}
{{- end }}
{{- end }}
{{- if .Values.httpRoute.enabled }}
{{- $hosts = concat $hosts .Values.httpRoute.hostnames }}
{{- end }}
{{- $_ := set $server "hosts" ($hosts | compact | uniq) }}
{{- if .Values.admin.enabled }}
{{- $_ := set $server "admin_port" (int .Values.admin.port) }}
{{- end }}
{{- if .Values.admin.key }}
{{- $_ := set $server "admin_key" (printf "${%s}" .Values.admin.key) }}
{{- end }}
{{- if not .Values.hotReload }}
{{- $_ := set $server "watch" false }}
{{- end }}
{{- $own := dict "server" $server }}
{{- $state := .Values.state }}
{{- if and (eq $state.kind "redis") (not $state.settings) }}
{{- $_ := set $own "state" $state.url }}
{{- else if eq $state.kind "redis" }}
{{- $_ := set $own "state" (merge (dict "kind" "redis" "url" $state.url) $state.settings) }}
{{- else if eq $state.kind "disk" }}
{{- $_ := set $own "state" (merge (dict "kind" "disk" "directory" "/var/lib/penstock/state") $state.settings) }}
{{- else }}
{{- $_ := set $own "state" (merge (dict "kind" $state.kind) $state.settings) }}
{{- end }}
{{- $vectors := .Values.vectors }}
{{- if and $vectors.url $vectors.settings }}
{{- $_ := set $own "vectors" (merge (dict "kind" "qdrant" "url" $vectors.url) $vectors.settings) }}
{{- else if $vectors.url }}
{{- $_ := set $own "vectors" $vectors.url }}
{{- else if $vectors.settings }}
{{- $_ := set $own "vectors" (merge (deepCopy $vectors.settings) (dict "kind" "embedded")) }}
{{- end }}
{{- toYaml $own }}
{{- end }}

{{- define "penstock.config" -}}
{{- include "penstock.validate" . }}
{{- toYaml (mustMergeOverwrite (deepCopy .Values.config) (include "penstock.ownConfig" . | fromYaml)) }}
{{- end }}

{{- /* The sections that a running pod cannot take over. */ -}}
{{- define "penstock.fixedConfig" -}}
{{- $config := include "penstock.config" . | fromYaml }}
{{- $limits := pick ($config.limits | default dict) "max_header_bytes" "header_timeout" "body_timeout" "write_timeout" }}
{{- toYaml (merge (pick $config "server" "state" "vectors" "embedding" "telemetry" "memories" "judge" "records") (dict "limits" $limits)) }}
{{- end }}

{{- define "penstock.configMapName" -}}
{{- default (printf "%s-config" (include "penstock.fullname" .)) .Values.existingConfigMap }}
{{- end }}

{{- define "penstock.secretName" -}}
{{- if .Values.secrets }}{{ include "penstock.fullname" . }}{{ else }}{{ .Values.existingSecret }}{{ end }}
{{- end }}

{{- define "penstock.adminName" -}}
{{- include "penstock.fullname" . | trunc 57 | trimSuffix "-" }}-admin
{{- end }}

{{- /* Where the configuration and its variables come from; the same for the check and for the proxy. */ -}}
{{- define "penstock.environment" -}}
env:
  - name: PENSTOCK_PORT
    value: {{ .Values.service.port | int | quote }}
  {{- with .Values.extraEnv }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- if or .Values.secrets .Values.existingSecret .Values.extraEnvFrom }}
envFrom:
  {{- with include "penstock.secretName" . }}
  - secretRef:
      name: {{ . }}
  {{- end }}
  {{- with .Values.extraEnvFrom }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
securityContext:
  {{- toYaml .Values.securityContext | nindent 2 }}
resources:
  {{- include "penstock.resources" . | nindent 2 }}
volumeMounts:
  # a directory, not a file by subPath: only so do changes of the ConfigMap arrive
  - name: config
    mountPath: /etc/penstock
    readOnly: true
  - name: state
    mountPath: /var/lib/penstock
  - name: tmp
    mountPath: /tmp
  {{- with .Values.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
