package main

import (
	"regexp"
	"strings"
)

const maskedAs = "MASKED"

// A name that contains one of these is that of a secret. Names of Secrets are
// none, so that a report says which one is meant.
var (
	secretWords = regexp.MustCompile(`(?i)(password|passwd|passphrase|token|api-?key|secret-?key|private-?key|credential|authorization|secret)`)
	secretNames = regexp.MustCompile(`(?i)^(passwordSecret|secretName|imagePullSecrets|secretRef|secretKeyRef|secrets|automountServiceAccountToken|serviceAccountToken|credentialsName)$`)

	// secretLine is a line, or part of one, that gives a secret: key: value,
	// key=value, --key value.
	secretLine = regexp.MustCompile(`(?im)((?:[\w.-]*)(?:password|passwd|passphrase|token|api-?key|secret-?key|private-?key|credential|authorization|secret)[\w.-]*["']?)(\s*[:=]\s*|\s+)(\S[^\n]*)`)
)

// dropped are annotations that repeat the whole object.
var dropped = map[string]bool{"kubectl.kubernetes.io/last-applied-configuration": true}

// mask returns a JSON value without secrets: what has the name of one, the
// value of an environment variable with such a name, and lines of texts.
func mask(name string, value any) any {
	switch v := value.(type) {
	case map[string]any:
		return maskObject(v)
	case []any:
		for i := range v {
			v[i] = mask(name, v[i])
		}
		return v
	case string:
		if isSecret(name) {
			return maskedAs
		}
		return maskLines(v)
	}
	if _, isFlag := value.(bool); isFlag || value == nil || !isSecret(name) {
		return value
	}
	return maskedAs // a number
}

func maskObject(v map[string]any) any {
	delete(v, "managedFields")
	for key, inner := range v {
		switch {
		case dropped[key]:
			v[key] = maskedAs
		default:
			v[key] = mask(key, inner)
		}
	}
	if name, ok := v["name"].(string); ok && isSecret(name) && v["value"] != nil {
		v["value"] = maskedAs // of an environment variable
	}
	return v
}

func isSecret(name string) bool {
	return secretWords.MatchString(name) && !secretNames.MatchString(name)
}

// maskLines masks what follows the name of a secret, to the end of its line.
func maskLines(text string) string {
	return secretLine.ReplaceAllStringFunc(text, func(found string) string {
		parts := secretLine.FindStringSubmatch(found)
		name := strings.Trim(parts[1], `"'-`)
		if secretNames.MatchString(name) || !strings.ContainsAny(parts[2], ":=") && !strings.HasPrefix(parts[1], "--") {
			return found // a word in a sentence
		}
		return parts[1] + parts[2] + maskedAs
	})
}
