# Prints the table of values for a chart's README from the comments of its values.yaml: a comment that starts with "# --" belongs
# to the key below it. A documented map or list stands for what is inside of it.
function flush() { doc = ""; documenting = 0 }
/^[ ]*# -- / { documenting = 1; sub(/^[ ]*# -- /, ""); doc = $0; next }
/^[ ]*#/ { if (documenting) { sub(/^[ ]*# */, ""); doc = doc " " $0 } next }
/^[ ]*-/ { next }
/^[ ]*$/ { flush(); next }
match($0, /^[ ]*[A-Za-z._\/-]+:/) {
  depth = match($0, /[^ ]/) - 1
  while (level > 0 && indent[level] >= depth) level--
  level++
  indent[level] = depth
  key = $1
  sub(/:$/, "", key)
  path[level] = (level > 1 ? path[level - 1] "." : "") key
  value = $0
  sub(/^[ ]*[^:]+:[ ]*/, "", value)
  covered[level] = doc != "" || (level > 1 && covered[level - 1])
  if (doc != "" || (value != "" && !(level > 1 && covered[level - 1]))) {
    gsub(/\|/, "\\|", doc)
    printf "| `%s` | %s | %s |\n", path[level], (value == "" ? "see values.yaml" : "`" value "`"), doc
  }
  flush()
}
