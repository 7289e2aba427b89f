package status

import (
	"bufio"
	"encoding/json"
	"reflect"
)

// writeJSON writes the plan a piece at a time, an item of a list to a line:
// what encoding/json makes of all of it at once is as big as all else that an
// announcer has in memory, and no look at it may end in its death.
func (p Plan) writeJSON(w *bufio.Writer) { writeValue(w, reflect.ValueOf(p), 3) }

// writeValue writes a struct field by field, a list item by item, down to a
// depth, and everything else as a whole. Errors are the writer's.
func writeValue(w *bufio.Writer, v reflect.Value, depth int) {
	switch {
	case depth > 0 && v.Kind() == reflect.Struct && !isText(v):
		w.WriteString("{")
		for i := range v.NumField() {
			if i > 0 {
				w.WriteString(",\n")
			}
			writeWhole(w, v.Type().Field(i).Name)
			w.WriteString(":")
			writeValue(w, v.Field(i), depth-1)
		}
		w.WriteString("}")
	case depth > 0 && v.Kind() == reflect.Slice:
		w.WriteString("[")
		for i := range v.Len() {
			if i > 0 {
				w.WriteString(",\n")
			}
			writeWhole(w, v.Index(i).Interface())
		}
		w.WriteString("]")
	default:
		writeWhole(w, v.Interface())
	}
}

// isText tells whether a struct has a form of its own, as time.Time has.
func isText(v reflect.Value) bool {
	_, ok := v.Interface().(json.Marshaler)
	return ok
}

// writeWhole writes one value. There is nothing in a plan that cannot be written.
func writeWhole(w *bufio.Writer, v any) {
	text, err := json.Marshal(v)
	if err != nil {
		panic("status: a plan that is no JSON: " + err.Error())
	}
	w.Write(text)
}
