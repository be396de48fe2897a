{{/*
What a schema cannot say: values that are missing, and values that contradict each other. Everything that is wrong is said at
once, each with its cure.
*/}}
{{- define "nymph.validate" -}}
{{- $wrong := list -}}
{{- $url := .Values.controlPlane.url -}}
{{- if not $url -}}
{{- $wrong = append $wrong "controlPlane.url is missing: say where the control plane answers, for instance --set controlPlane.url=wss://lakeshore.example" -}}
{{- else if not (regexMatch "^wss?://[^/]+" $url) -}}
{{- $wrong = append $wrong (printf "controlPlane.url is %q, but it must start with wss:// (or ws:// inside a network that you trust)" $url) -}}
{{- end -}}
{{- if not .Values.controlPlane.tokenSecret.name -}}
{{- $wrong = append $wrong (printf "controlPlane.tokenSecret.name is missing: make an enrolment token with `lakeshore clusters enroll NAME`, put it into a Secret of namespace %s under the key %q, and name the Secret" .Release.Namespace .Values.controlPlane.tokenSecret.key) -}}
{{- end -}}
{{- $policy := include "nymph.policy" . | fromYaml -}}
{{- if has .Release.Namespace $policy.run_namespaces -}}
{{- $wrong = append $wrong (printf "%q is the release namespace and a run namespace: launches beside the daemon could read its token. Set runNamespace.name (or policy.run_namespaces) to another namespace, or install the release into one of its own" .Release.Namespace) -}}
{{- end -}}
{{- if not (has .Values.runNamespace.name $policy.run_namespaces) -}}
{{- $wrong = append $wrong (printf "runNamespace.name %q is not in policy.run_namespaces (%s): add it there, or leave policy.run_namespaces out" .Values.runNamespace.name (join ", " $policy.run_namespaces)) -}}
{{- end -}}
{{- with $policy.default_namespace -}}
{{- if not (has . $policy.run_namespaces) -}}
{{- $wrong = append $wrong (printf "policy.default_namespace %q is not in policy.run_namespaces (%s)" . (join ", " $policy.run_namespaces)) -}}
{{- end -}}
{{- end -}}
{{- if $wrong -}}
{{- fail (printf "\n\nThe values of the chart %s do not do:\n  - %s\n" .Chart.Name (join "\n  - " $wrong)) -}}
{{- end -}}
{{- end -}}
