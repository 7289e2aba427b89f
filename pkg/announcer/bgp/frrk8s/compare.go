package frrk8s

import (
	"encoding/json"
	"fmt"
	"reflect"
)

// Live is an FRRConfiguration as the API server has it.
type Live struct {
	Metadata struct {
		Metadata
		UID        string `json:"uid"`
		Generation int64  `json:"generation"` // grows with each change of the spec
	} `json:"metadata"`
	Spec map[string]any `json:"spec"`
}

// ReadLive reads an FRRConfiguration.
func ReadLive(text []byte) (*Live, error) {
	l := &Live{}
	if err := json.Unmarshal(text, l); err != nil {
		return nil, fmt.Errorf("read an FRRConfiguration: %w", err)
	}
	return l, nil
}

// Has tells whether the object that the API server has says what is wanted and
// nothing more. What else it has is no difference if it is empty: a later
// version of the API may know more keys, with defaults.
func (l *Live) Has(want Object) bool {
	for key, value := range want.Metadata.Labels {
		if l.Metadata.Labels[key] != value {
			return false
		}
	}
	if !reflect.DeepEqual(l.Metadata.OwnerReferences, want.Metadata.OwnerReferences) {
		return false
	}
	text, err := json.Marshal(want.Spec)
	if err != nil {
		return false
	}
	var spec map[string]any
	return json.Unmarshal(text, &spec) == nil && same(spec, l.Spec)
}

// same compares what JSON says, except for what is empty.
func same(want, have any) bool {
	switch want := want.(type) {
	case map[string]any:
		have, ok := have.(map[string]any)
		if !ok {
			return false
		}
		for key, value := range want {
			if !same(value, have[key]) {
				return false
			}
		}
		for key, value := range have {
			if _, known := want[key]; !known && !empty(value) {
				return false
			}
		}
		return true
	case []any:
		have, ok := have.([]any)
		if !ok || len(have) != len(want) {
			return false
		}
		for i := range want {
			if !same(want[i], have[i]) {
				return false
			}
		}
		return true
	}
	return want == have || empty(want) && have == nil
}

func empty(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		for _, value := range v {
			if !empty(value) {
				return false
			}
		}
		return true
	case []any:
		return len(v) == 0
	}
	return v == nil || v == false || v == "" || v == float64(0)
}
