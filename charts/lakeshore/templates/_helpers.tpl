{{/* The chart's name, or what overrides it. */}}
{{- define "lakeshore.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* The release's full name. A release that is called after the chart does not repeat it. */}}
{{- define "lakeshore.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if contains (include "lakeshore.name" .) .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "lakeshore.name" .) | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "lakeshore.selectorLabels" -}}
app.kubernetes.io/name: {{ include "lakeshore.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: control-plane
{{- end -}}

{{- define "lakeshore.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "lakeshore.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: nymph
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "lakeshore.adminTokenSecret" -}}
{{- default (printf "%s-admin-token" (include "lakeshore.fullname" .)) .Values.adminToken.existingSecret -}}
{{- end -}}

{{- define "lakeshore.servicePort" -}}
{{- .Values.service.port | default (ternary 443 80 (not (empty .Values.tls.secretName))) | int -}}
{{- end -}}

{{/* `http` or `https`: what the server itself speaks. */}}
{{- define "lakeshore.scheme" -}}
{{- ternary "https" "http" (not (empty .Values.tls.secretName)) -}}
{{- end -}}

{{/* The address inside of the cluster without its scheme; the port is left out where the scheme says it. */}}
{{- define "lakeshore.address" -}}
{{- $port := include "lakeshore.servicePort" . -}}
{{- $usual := ternary "443" "80" (not (empty .Values.tls.secretName)) -}}
{{- printf "%s.%s.svc" (include "lakeshore.fullname" .) .Release.Namespace -}}
{{- if ne $port $usual -}}:{{ $port }}{{- end -}}
{{- end -}}
