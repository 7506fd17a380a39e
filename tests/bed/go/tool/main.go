// One static binary for the node bed: the pause process of every Pod's sandbox, the small things that test Pods do, and an
// origin for proxies to reach.
//
//	tool pause             wait for SIGTERM and reap children, as the first process of a sandbox must
//	tool exit N            print a line and exit N
//	tool eat MIB           allocate and touch MIB mebibytes, then wait as pause does
//	tool fill FILE MIB     write MIB mebibytes to FILE, then wait as pause does
//	tool print MIB         print MIB mebibytes, then wait as pause does
//	tool stubborn COMMAND  the same COMMAND, which ignores SIGTERM
//	tool api [PATH]        GET PATH (default /version) from the API server as the Pod's service account, then wait as pause does
//	tool origin IP CERT KEY  answer every request on IP's ports 80 and 443: 204 to /generate_204, else who asked for what, as JSON
//
// Under the name squid it takes its command from the file /squid, whatever it is called with: a Squid that does not do well.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const account = "/var/run/secrets/kubernetes.io/serviceaccount/"

// must ends the program: each command here has one thing to do.
func must[T any](value T, err error) T {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return value
}

// Whether SIGTERM is ignored.
var stubborn bool

func wait() {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGCHLD)
	for s := range signals {
		if s != syscall.SIGCHLD && !stubborn {
			os.Exit(0)
		}
		for {
			if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); pid <= 0 || err != nil {
				break
			}
		}
	}
}

func eat(mebibytes int) {
	memory := make([]byte, mebibytes<<20)
	for i := 0; i < len(memory); i += 4096 {
		memory[i] = 1
	}
	fmt.Println("ate", mebibytes, "MiB")
	wait()
	_ = memory[0]
}

func fill(path string, mebibytes int) {
	file := must(os.Create(path))
	for range mebibytes {
		must(file.Write(make([]byte, 1<<20)))
	}
	fmt.Println("wrote", mebibytes, "MiB")
}

func chatter(mebibytes int) {
	line := strings.Repeat("chatter ", 127) + "chatter\n"
	for range mebibytes << 10 {
		must(io.WriteString(os.Stdout, line))
	}
}

func api(path string) {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(must(os.ReadFile(account + "ca.crt")))
	client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
	server := net.JoinHostPort(os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT"))
	request := must(http.NewRequest("GET", "https://"+server+path, nil))
	request.Header.Set("Authorization", "Bearer "+string(must(os.ReadFile(account+"token"))))
	response := must(client.Do(request))
	fmt.Printf("uid %d, %s -> %s\n%s\n", os.Getuid(), request.URL, response.Status, must(io.ReadAll(response.Body)))
}

func origin(ip, cert, key string) {
	answer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/generate_204" {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		remote, _, _ := net.SplitHostPort(r.RemoteAddr)
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"remote": remote, "host": r.Host, "path": r.URL.Path, "tls": r.TLS != nil})
	})
	ended := make(chan error)
	go func() { ended <- http.ListenAndServe(net.JoinHostPort(ip, "80"), answer) }()
	go func() { ended <- http.ListenAndServeTLS(net.JoinHostPort(ip, "443"), cert, key, answer) }()
	must(0, <-ended)
}

func argument(i int) string {
	if i < len(os.Args) {
		return os.Args[i]
	}
	return ""
}

func number(i int) int { return must(strconv.Atoi(argument(i))) }

func main() {
	if filepath.Base(os.Args[0]) == "squid" {
		os.Args = append(os.Args[:1], strings.Fields(string(must(os.ReadFile("/squid"))))...)
	}
	if argument(1) == "stubborn" {
		stubborn = true
		os.Args = append(os.Args[:1], os.Args[2:]...)
	}
	switch argument(1) {
	case "pause":
	case "exit":
		fmt.Println("exiting with", number(2))
		os.Exit(number(2))
	case "eat":
		eat(number(2))
	case "fill":
		fill(argument(2), number(3))
	case "print":
		chatter(number(2))
	case "api":
		path := argument(2)
		if path == "" {
			path = "/version"
		}
		api(path)
	case "origin":
		origin(argument(2), argument(3), argument(4))
	default:
		fmt.Fprintln(os.Stderr, "tool: one of pause, exit, eat, fill, print, stubborn, api, origin")
		os.Exit(2)
	}
	wait()
}
