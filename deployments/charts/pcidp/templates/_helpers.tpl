{{- define "pcidp.name" -}}
{{ .Values.nameOverride | default "kube-sriov-device-plugin" | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "pcidp.configMap" -}}
{{ .Values.existingConfigMap | default (printf "%s-config" (include "pcidp.name" .)) }}
{{- end }}

{{- define "pcidp.serviceAccount" -}}
{{ .Values.serviceAccount.name | default (ternary "sriov-device-plugin" "default" .Values.serviceAccount.create) }}
{{- end }}

{{- define "pcidp.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end }}

{{- define "pcidp.selector" -}}
app.kubernetes.io/name: pcidp
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "pcidp.labels" -}}
{{ include "pcidp.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "pcidp.config" -}}
{{ dict "resourceList" .Values.pools | toPrettyJson }}
{{- end }}

{{- define "pcidp.status" -}}
{{- $values := (index . 0).Values -}}
{{- $command := list "pcidp" "status" (index . 1) -}}
{{- if ne $values.devicePluginDir "/var/lib/kubelet/device-plugins" -}}
{{- $command = append $command (printf "--device-plugin-dir=%s" $values.devicePluginDir) -}}
{{- end -}}
{{ toJson $command }}
{{- end }}
