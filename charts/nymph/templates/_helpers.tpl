{{/* The chart's name, or what overrides it. */}}
{{- define "nymph.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* The release's full name. A release that is called after the chart does not repeat it. */}}
{{- define "nymph.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if contains (include "nymph.name" .) .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "nymph.name" .) | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "nymph.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "nymph.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* The daemon of role `cluster`. Its ServiceAccount is another one, since it has other rights. */}}
{{- define "nymph.clusterName" -}}
{{- printf "%s-cluster" (include "nymph.fullname" . | trunc 55 | trimSuffix "-") -}}
{{- end -}}

{{- define "nymph.clusterServiceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "nymph.clusterName" .) .Values.cluster.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.cluster.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* Name of what stands outside of the release namespace: two releases may share a run namespace, and all share the cluster. */}}
{{- define "nymph.foreignName" -}}
{{- printf "%s:%s" .Release.Namespace (include "nymph.fullname" .) -}}
{{- end -}}

{{- define "nymph.selectorLabels" -}}
app.kubernetes.io/name: {{ include "nymph.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: node
{{- end -}}

{{- define "nymph.clusterSelectorLabels" -}}
app.kubernetes.io/name: {{ include "nymph.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: cluster
{{- end -}}

{{- define "nymph.labels" -}}
{{ include "nymph.selectorLabels" . }}
{{ include "nymph.chartLabels" . }}
{{- end -}}

{{- define "nymph.clusterLabels" -}}
{{ include "nymph.clusterSelectorLabels" . }}
{{ include "nymph.chartLabels" . }}
{{- end -}}

{{- define "nymph.chartLabels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: nymph
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{/* The policy as the daemon reads it. */}}
{{- define "nymph.policy" -}}
{{- $filled := dict "version" 1 "run_namespaces" (list .Values.runNamespace.name) -}}
{{- mustMergeOverwrite $filled (deepCopy .Values.policy) | toYaml -}}
{{- end -}}

{{/*
The proof of who a daemon is: a token of its ServiceAccount for the control plane alone, with its Pod and node in it, which the kubelet renews.
A Pod of ours has this volume, and the mount beside it.
*/}}
{{- define "nymph.identityVolume" -}}
- name: identity
  projected:
    defaultMode: 0400
    sources:
      - serviceAccountToken:
          audience: {{ .Values.controlPlane.audience | quote }}
          expirationSeconds: 3600
          path: token
{{- end -}}

{{- define "nymph.identityMount" -}}
- name: identity
  mountPath: /var/run/nymph/identity
  readOnly: true
{{- end -}}

{{/* The daemon's configuration file: what the chart decides, then the owner's words over it. */}}
{{- define "nymph.config" -}}
{{- $controlPlane := dict "url" .Values.controlPlane.url "token_file" "/var/run/nymph/token/token" "identity_token_file" "/var/run/nymph/identity/token" -}}
{{- if .Values.controlPlane.caSecret.name -}}
{{- $_ := set $controlPlane "ca_file" "/var/run/nymph/ca/ca.crt" -}}
{{- end -}}
{{- with .Values.controlPlane.serverName -}}
{{- $_ := set $controlPlane "server_name" . -}}
{{- end -}}
{{- $config := dict
      "control_plane" $controlPlane
      "policy_file" "/etc/nymph/policy.yaml"
      "workdir" (dict "root" .Values.workdir.root)
      "health" (dict "listen" (printf "0.0.0.0:%d" (int .Values.health.port)))
      "log" (dict "filter" .Values.log.filter "format" "json")
      "drain_seconds" 20 -}}
{{- mustMergeOverwrite $config (deepCopy .Values.config) | toYaml -}}
{{- end -}}

{{/* The kubelet waits as long as the daemon drains, and 10 s for it to close its connections. */}}
{{- define "nymph.terminationGracePeriodSeconds" -}}
{{- $config := include "nymph.config" . | fromYaml -}}
{{- add (int $config.drain_seconds) 10 -}}
{{- end -}}

{{/* The daemon of role `cluster` touches no node: it is no root, unless the values leave the user to the cluster. */}}
{{- define "nymph.clusterUser" -}}
{{- if hasKey .Values.securityContext "runAsUser" -}}65532{{- end -}}
{{- end -}}

{{- define "nymph.clusterSecurityContext" -}}
{{- $context := deepCopy .Values.securityContext -}}
{{- with include "nymph.clusterUser" . -}}
{{- $context = mustMergeOverwrite $context (dict "runAsUser" (int .) "runAsGroup" (int .) "runAsNonRoot" true) -}}
{{- end -}}
{{- with $context -}}{{- toYaml . -}}{{- end -}}
{{- end -}}

{{/* The group is what lets it read its tokens. */}}
{{- define "nymph.clusterPodSecurityContext" -}}
{{- $context := deepCopy .Values.podSecurityContext -}}
{{- with include "nymph.clusterUser" . -}}
{{- $context = mustMergeOverwrite (dict "fsGroup" (int .)) $context -}}
{{- end -}}
{{- with $context -}}{{- toYaml . -}}{{- end -}}
{{- end -}}
