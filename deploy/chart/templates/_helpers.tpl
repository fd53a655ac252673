{{/* Every helper takes a dict: root (the chart's $) and component (its name in the values). */}}

{{- define "slackwater.name" -}}
{{ .root.Release.Name }}-{{ .component }}
{{- end }}

{{- define "slackwater.selector" -}}
app.kubernetes.io/name: slackwater
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "slackwater.labels" -}}
{{ include "slackwater.selector" . }}
app.kubernetes.io/part-of: slackwater
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
{{- end }}

{{- define "slackwater.namespace" -}}
{{ if eq .component "node" }}{{ .root.Values.node.namespace }}{{ else }}{{ .root.Release.Namespace }}{{ end }}
{{- end }}

{{- define "slackwater.metadata" -}}
name: {{ include "slackwater.name" . }}
namespace: {{ include "slackwater.namespace" . }}
labels:
  {{- include "slackwater.labels" . | nindent 2 }}
{{- end }}

{{- define "slackwater.clusterMetadata" -}}
name: {{ include "slackwater.name" . }}
labels:
  {{- include "slackwater.labels" . | nindent 2 }}
{{- end }}

{{- define "slackwater.account" -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  {{- include "slackwater.metadata" . | nindent 2 }}
automountServiceAccountToken: false
{{- end }}

{{/* Binds the component's account to the cluster role of its name. */}}
{{- define "slackwater.clusterBinding" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  {{- include "slackwater.clusterMetadata" . | nindent 2 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: {{ include "slackwater.name" . }}
subjects:
  - kind: ServiceAccount
    name: {{ include "slackwater.name" . }}
    namespace: {{ include "slackwater.namespace" . }}
{{- end }}

{{/* The one Lease (lease: its name) of a component that has a leader. A name cannot bound what is created. */}}
{{- define "slackwater.lease" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  {{- include "slackwater.metadata" . | nindent 2 }}
rules:
  - apiGroups: [coordination.k8s.io]
    resources: [leases]
    verbs: [create]
  - apiGroups: [coordination.k8s.io]
    resources: [leases]
    resourceNames: [{{ .lease }}]
    verbs: [get, update]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  {{- include "slackwater.metadata" . | nindent 2 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: {{ include "slackwater.name" . }}
subjects:
  - kind: ServiceAccount
    name: {{ include "slackwater.name" . }}
    namespace: {{ include "slackwater.namespace" . }}
{{- end }}

{{/* One at a time may be away for an upgrade of machines; an ill pod never holds one up. */}}
{{- define "slackwater.budget" -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  {{- include "slackwater.metadata" . | nindent 2 }}
spec:
  maxUnavailable: 1
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      {{- include "slackwater.selector" . | nindent 6 }}
{{- end }}

{{/* What the pods of all components but the node agent share. */}}
{{- define "slackwater.pod" -}}
{{- $values := index .root.Values .component | default dict -}}
{{- include "slackwater.podBase" . }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile: {type: RuntimeDefault}
{{- if gt (int (dig "replicas" 1 $values)) 1 }}
topologySpreadConstraints:
  {{- range $key := list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
  - maxSkew: 1
    topologyKey: {{ $key }}
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "slackwater.selector" $ | nindent 8 }}
  {{- end }}
{{- end }}
{{- end }}

{{- define "slackwater.podBase" -}}
{{- $values := index .root.Values .component | default dict -}}
serviceAccountName: {{ include "slackwater.name" . }}
enableServiceLinks: false
{{- if .root.Values.priorityClasses.enabled }}
priorityClassName: {{ .root.Release.Name }}-{{ if eq .component "node" }}node{{ else }}control{{ end }}
{{- end }}
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- with dig "nodeSelector" dict $values }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with dig "tolerations" list $values }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* What all containers but the node agent's may do: nothing but their own work. */}}
{{- define "slackwater.container" -}}
{{ include "slackwater.image" . }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

{{- define "slackwater.image" -}}
{{- with .root.Values.image -}}
image: {{ .repository }}:{{ .tag | default $.root.Chart.AppVersion }}
imagePullPolicy: {{ .pullPolicy }}
{{- end }}
{{- end }}

{{/* Where Kafka is, for every command. */}}
{{- define "slackwater.env" -}}
- {name: SLACKWATER_BROKERS, value: {{ .root.Values.kafka.brokers | quote }}}
- {name: SLACKWATER_PREFIX, value: {{ .root.Values.kafka.prefix | quote }}}
{{- end }}

{{- define "slackwater.extraArgs" -}}
{{- with (index .root.Values .component).extraArgs }}
{{- toYaml . }}
{{- end }}
{{- end }}

{{- define "slackwater.metricsArgs" -}}
- --metrics-host=0.0.0.0
- --metrics-port=9101
{{- end }}

{{- define "slackwater.resources" -}}
resources:
  {{- toYaml (index .root.Values .component).resources | nindent 2 }}
{{- end }}

{{/* Alive: it works; ready: it has caught up. Both behind the port of the metrics. */}}
{{- define "slackwater.probes" -}}
{{- $port := ternary "serve, scheme: HTTPS" "metrics" (hasKey . "serves") -}}
startupProbe:
  httpGet: {path: /healthz, port: {{ $port }}}
  periodSeconds: 2
  failureThreshold: 60
livenessProbe:
  httpGet: {path: /healthz, port: {{ $port }}}
  periodSeconds: 10
  timeoutSeconds: 3
  {{- /* A start of the agent gives every value back: whoever only blocks its port must not cause one. */}}
  failureThreshold: {{ eq .component "node" | ternary 60 3 }}
readinessProbe:
  httpGet: {path: /readyz, port: {{ $port }}}
  periodSeconds: 5
  timeoutSeconds: 3
{{- end }}

{{/*
Beside the policy for everything of ours: who has a token asks the API server, and who serves is asked
from where the API server and the scheduler are. The node agent also asks its kubelet.
*/}}
{{- define "slackwater.network" -}}
{{- $v := .root.Values.networkPolicies -}}
{{- if $v.enabled }}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  {{- include "slackwater.metadata" . | nindent 2 }}
spec:
  podSelector:
    matchLabels:
      {{- include "slackwater.selector" . | nindent 6 }}
  policyTypes: [{{ if .serves }}Ingress, {{ end }}Egress]
  {{- if .serves }}
  ingress:
    - ports: [{port: serve}]
      {{- with $v.apiServer }}
      from:
        {{- toYaml (concat . $v.metrics) | nindent 8 }}
      {{- end }}
  {{- end }}
  egress:
    - ports:
        {{- range $v.apiServerPorts }}
        - port: {{ . | int }}
        {{- end }}
        {{- if eq .component "node" }}
        - port: 10250
        {{- end }}
      {{- with $v.apiServer }}
      to:
        {{- toYaml . | nindent 8 }}
      {{- end }}
{{- end }}
{{- end }}

{{/* Workers' public keys, without any secret: who only checks what workers said. */}}
{{- define "slackwater.publicKeys" -}}
- name: keys
  secret:
    secretName: {{ .root.Values.keys.secret }}
    defaultMode: 0400
    items: [{key: worker.pub, path: worker.pub}]
{{- end }}

{{/* A certificate that is read again when it changes. */}}
{{- define "slackwater.certificate" -}}
- name: certificate
  secret: {secretName: {{ (index .root.Values .component).tlsSecret }}, defaultMode: 0400}
{{- end }}
