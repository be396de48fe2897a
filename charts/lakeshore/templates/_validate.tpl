{{/* What a schema cannot say: values that contradict each other. All of it at once, each with its cure. */}}
{{- define "lakeshore.validate" -}}
{{- $wrong := list -}}
{{- if and .Values.ingress.enabled (not .Values.ingress.host) -}}
{{- $wrong = append $wrong "ingress.enabled is true, but ingress.host is missing: set the host name that callers and daemons use" -}}
{{- end -}}
{{- if and .Values.service.nodePort (eq .Values.service.type "ClusterIP") -}}
{{- $wrong = append $wrong "service.nodePort is set, but service.type is ClusterIP: set service.type=NodePort, or leave the port out" -}}
{{- end -}}
{{- if $wrong -}}
{{- fail (printf "\n\nThe values of the chart %s do not do:\n  - %s\n" .Chart.Name (join "\n  - " $wrong)) -}}
{{- end -}}
{{- end -}}
