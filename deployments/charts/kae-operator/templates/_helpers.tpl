{{- define "kae-operator.name" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{ .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else -}}
{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" }}
{{- end -}}
{{- end }}

{{- define "kae-operator.image" -}}
{{- $separator := ternary "@" ":" (hasPrefix "sha256:" .Values.operator.version) -}}
{{ .Values.operator.image }}{{ $separator }}{{ .Values.operator.version }}
{{- end }}

{{- define "kae-operator.selector" -}}
app.kubernetes.io/name: kae-operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "kae-operator.labels" -}}
{{ include "kae-operator.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: kae
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{/* What all pods of the operator's image have. */}}
{{- define "kae-operator.pod" -}}
{{- with .Values.operator.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.operator.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.operator.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.operator.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.operator.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  seccompProfile:
    type: RuntimeDefault
{{- end }}

{{- define "kae-operator.container" -}}
image: {{ include "kae-operator.image" . | quote }}
imagePullPolicy: {{ .Values.operator.pullPolicy }}
command:
- kae-operator
securityContext:
  privileged: false
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop:
    - ALL
{{- with .Values.operator.resources }}
resources:
  {{- toYaml . | nindent 2 }}
{{- end }}
terminationMessagePolicy: FallbackToLogsOnError
{{- end }}

{{/* An object without what has no value. */}}
{{- define "kae-operator.given" -}}
{{- $given := dict -}}
{{- range $key, $value := . -}}
{{- if not (kindIs "invalid" $value) -}}
{{- $_ := set $given $key $value -}}
{{- end -}}
{{- end -}}
{{ toYaml $given }}
{{- end }}

{{/*
A step of Helm: a job of the operator's own image, with a service account and rights of its own.
(list . NAME EVENT ARGUMENTS RULES)
*/}}
{{- define "kae-operator.hook" -}}
{{- $root := index . 0 -}}
{{- $name := printf "%s-%s" (include "kae-operator.name" $root) (index . 1) -}}
{{- $event := index . 2 -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ $name }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "kae-operator.labels" $root | nindent 4 }}
  annotations:
    {{- include "kae-operator.weight" (list $event "-10") | nindent 4 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {{ $name }}
  labels:
    {{- include "kae-operator.labels" $root | nindent 4 }}
  annotations:
    {{- include "kae-operator.weight" (list $event "-10") | nindent 4 }}
rules:
{{ index . 4 | trim }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {{ $name }}
  labels:
    {{- include "kae-operator.labels" $root | nindent 4 }}
  annotations:
    {{- include "kae-operator.weight" (list $event "-5") | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: {{ $name }}
subjects:
- kind: ServiceAccount
  name: {{ $name }}
  namespace: {{ $root.Release.Namespace }}
---
apiVersion: batch/v1
kind: Job
metadata:
  name: {{ $name }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "kae-operator.labels" $root | nindent 4 }}
  annotations:
    {{- include "kae-operator.weight" (list $event "0") | nindent 4 }}
spec:
  backoffLimit: 3
  template:
    metadata:
      labels:
        app.kubernetes.io/name: {{ $name }}
        app.kubernetes.io/part-of: kae
    spec:
      serviceAccountName: {{ $name }}
      restartPolicy: Never
      {{- include "kae-operator.pod" $root | trim | nindent 6 }}
      containers:
      - name: {{ index . 1 }}
        {{- include "kae-operator.container" $root | nindent 8 }}
        args:
        {{- range index . 3 }}
        - {{ . }}
        {{- end }}
{{- end }}

{{/* What is left of an earlier try goes first; what is done goes. */}}
{{- define "kae-operator.weight" -}}
helm.sh/hook: {{ index . 0 }}
helm.sh/hook-weight: {{ index . 1 | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end }}
