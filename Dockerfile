# The images of both programs, for those who prefer a container engine to
# `make images`. The stage `build` needs .git, for what --version says.
#
#   docker build --target announcer --build-arg VERSION=v0.1.0 --tag announcer:v0.1.0 .
FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION
RUN make build ${VERSION:+VERSION=$VERSION}

FROM scratch AS ccm-baremetal
COPY --from=build /src/bin/ccm-baremetal /
ENV PATH=/
USER 65532:65532
ENTRYPOINT ["/ccm-baremetal"]

FROM scratch AS announcer
COPY --from=build /src/bin/announcer /
ENV PATH=/
USER 0:0
ENTRYPOINT ["/announcer"]
