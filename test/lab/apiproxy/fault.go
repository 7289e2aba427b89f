package apiproxy

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
)

// A Fault handles requests in its own way, or leaves them to next.
type Fault func(next http.Handler) http.Handler

// A Match picks the requests that a fault is for. Empty fields pick all.
type Match struct {
	Verb     string // as in RBAC: list, watch, patch, ...
	Resource string // as in RBAC: services, services/status, ...
}

func (m Match) picks(r *http.Request) bool {
	info, err := requests.NewRequestInfo(r)
	if err != nil {
		return false
	}
	resource := info.Resource
	if info.Subresource != "" {
		resource += "/" + info.Subresource
	}
	return (m.Verb == "" || m.Verb == info.Verb) && (m.Resource == "" || m.Resource == resource)
}

// requests understands paths as the API server does.
var requests = apirequest.RequestInfoFactory{
	APIPrefixes:          sets.NewString("api", "apis"),
	GrouplessAPIPrefixes: sets.NewString("api"),
}

// fault makes a Fault of what is done with the picked requests.
func fault(m Match, do func(w http.ResponseWriter, r *http.Request, next http.Handler)) Fault {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if m.picks(r) {
				do(w, r, next)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
}

// Delay lets requests wait before they go to the server.
func Delay(m Match, by time.Duration) Fault {
	return fault(m, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		select {
		case <-time.After(by):
			next.ServeHTTP(w, r)
		case <-r.Context().Done():
		}
	})
}

// CutWatches ends every watch of a resource after some time, in the middle of
// its stream.
func CutWatches(resource string, after time.Duration) Fault {
	return fault(Match{Verb: "watch", Resource: resource}, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		ctx, cancel := context.WithTimeout(r.Context(), after)
		defer cancel()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// GoneOnce answers the next watch of a resource with 410 Gone: the history that
// the client wants to go on from is lost, and it must list again.
func GoneOnce(resource string) Fault {
	var done atomic.Bool
	return fault(Match{Verb: "watch", Resource: resource}, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if done.Swap(true) {
			next.ServeHTTP(w, r)
			return
		}
		refuse(w, http.StatusGone, metav1.StatusReasonExpired)
	})
}

// Refuse answers requests with an error: 429, 500, 503, or what else.
func Refuse(m Match, code int) Fault {
	return fault(m, func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		refuse(w, code, metav1.StatusReasonUnknown)
	})
}

func refuse(w http.ResponseWriter, code int, reason metav1.StatusReason) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure,
		Message:  fmt.Sprintf("the lab's proxy answers %d", code),
		Reason:   reason,
		Code:     int32(code),
	})
}

// Silence never answers: requests last until the client gives up.
func Silence(m Match) Fault {
	return fault(m, func(_ http.ResponseWriter, r *http.Request, _ http.Handler) {
		<-r.Context().Done()
		panic(http.ErrAbortHandler)
	})
}

// Drop breaks the connection, or the stream in it, instead of answering.
func Drop(m Match) Fault {
	return fault(m, func(http.ResponseWriter, *http.Request, http.Handler) {
		panic(http.ErrAbortHandler)
	})
}

// Swallow lets the server do what is asked and then loses its answer, so that
// the client cannot know.
func Swallow(m Match) Fault {
	return fault(m, func(_ http.ResponseWriter, r *http.Request, next http.Handler) {
		next.ServeHTTP(nowhere{}, r)
		panic(http.ErrAbortHandler)
	})
}

// nowhere is a response that nobody gets.
type nowhere struct{}

func (nowhere) Header() http.Header         { return http.Header{} }
func (nowhere) Write(b []byte) (int, error) { return len(b), nil }
func (nowhere) WriteHeader(int)             {}
