// The oracle tells what Kubernetes itself makes of a quantity, of a pod's choice of nodes, of an image's name.
// It reads one JSON object a line and answers each with one line, null for what an API server would refuse.
package main

import (
	"bufio"
	_ "crypto/sha512" // a digest is accepted where the program knows its algorithm
	"encoding/json"
	"log"
	"os"

	"github.com/distribution/reference"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/kubernetes/pkg/apis/core"
	corev1 "k8s.io/kubernetes/pkg/apis/core/v1"
	corevalidation "k8s.io/kubernetes/pkg/apis/core/validation"
	kjson "sigs.k8s.io/json"
)

type question struct {
	Quantity *string     `json:"quantity"`
	Image    *string     `json:"image"`
	Spec     *v1.PodSpec `json:"spec"`
	Nodes    []v1.Node   `json:"nodes"`
}

func main() {
	lines, answers := bufio.NewScanner(os.Stdin), json.NewEncoder(os.Stdout)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		if err := answers.Encode(answer(lines.Bytes())); err != nil {
			log.Fatal(err)
		}
	}
	if err := lines.Err(); err != nil {
		log.Fatal(err)
	}
}

func answer(line []byte) any {
	var asked question
	// The API server's own decoder: encoding/json does not tell `Values` from `values`.
	if err := kjson.UnmarshalCaseSensitivePreserveInts(line, &asked); err != nil {
		return nil
	}
	switch {
	case asked.Quantity != nil:
		return quantity(*asked.Quantity)
	case asked.Image != nil:
		return image(*asked.Image)
	case asked.Spec != nil:
		return chosen(asked.Spec, asked.Nodes)
	}
	return nil
}

// quantity returns the number, and the text that the API server sends on.
func quantity(text string) any {
	parsed, err := resource.ParseQuantity(text)
	if err != nil {
		return nil
	}
	canonical := parsed.String()
	return map[string]string{"text": canonical, "number": parsed.AsDec().String()}
}

// image returns the parts of a reference; those that are not there are empty.
func image(text string) any {
	named, err := reference.ParseNormalizedNamed(text)
	if err != nil {
		return nil
	}
	parts := map[string]string{"registry": reference.Domain(named), "repository": reference.Path(named)}
	if tagged, ok := named.(reference.Tagged); ok {
		parts["tag"] = tagged.Tag()
	}
	if digested, ok := named.(reference.Digested); ok {
		parts["digest"] = digested.Digest().String()
	}
	return parts
}

// chosen names the nodes that a pod may go to. Terms and labels that the API server would refuse are left out.
func chosen(spec *v1.PodSpec, nodes []v1.Node) any {
	if affinity := spec.Affinity; affinity != nil && affinity.NodeAffinity != nil {
		if required := affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution; required != nil {
			required.NodeSelectorTerms = sound(required.NodeSelectorTerms)
		}
	}
	affinity, names := nodeaffinity.GetRequiredNodeAffinity(&v1.Pod{Spec: *spec}), []string{}
	for _, node := range nodes {
		for key, value := range node.Labels {
			if len(validation.IsQualifiedName(key))+len(validation.IsValidLabelValue(value)) > 0 {
				delete(node.Labels, key)
			}
		}
		named := spec.NodeName == "" || spec.NodeName == node.Name
		if matches, err := affinity.Match(&node); named && matches && err == nil {
			names = append(names, node.Name)
		}
	}
	return names
}

func sound(terms []v1.NodeSelectorTerm) (kept []v1.NodeSelectorTerm) {
	for _, term := range terms {
		var internal core.NodeSelectorTerm
		if err := corev1.Convert_v1_NodeSelectorTerm_To_core_NodeSelectorTerm(&term, &internal, nil); err != nil {
			log.Fatal(err)
		}
		if len(corevalidation.ValidateNodeSelectorTerm(internal, false, nil)) == 0 {
			kept = append(kept, term)
		}
	}
	return kept
}
