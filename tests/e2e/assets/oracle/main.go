// The oracle tells what Kubernetes itself makes of a quantity, of a pod's choice of nodes, of an image's name, of
// references to variables, of the resources of a container and of a selector of devices.
// It reads one JSON object a line and answers each with one line, null for what an API server would refuse.
package main

import (
	"bufio"
	"context"
	_ "crypto/sha512" // a digest is accepted where the program knows its algorithm
	"encoding/json"
	"log"
	"os"

	"github.com/distribution/reference"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/apis/core/helper"
	corev1 "k8s.io/kubernetes/pkg/apis/core/v1"
	corevalidation "k8s.io/kubernetes/pkg/apis/core/validation"
	"k8s.io/kubernetes/third_party/forked/golang/expansion"
	kjson "sigs.k8s.io/json"
)

type question struct {
	Quantity  json.RawMessage          `json:"quantity"`
	Image     *string                  `json:"image"`
	Spec      *v1.PodSpec              `json:"spec"`
	Nodes     []v1.Node                `json:"nodes"`
	Text      *string                  `json:"text"`
	Variables map[string]string        `json:"variables"`
	Resource  *string                  `json:"resource"`
	Resources *v1.ResourceRequirements `json:"resources"`
	Selector  *string                  `json:"selector"`
	Driver    string                   `json:"driver"`
	Device    resourceapi.Device       `json:"device"`
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
		return quantity(asked.Quantity)
	case asked.Image != nil:
		return image(*asked.Image)
	case asked.Spec != nil:
		return chosen(asked.Spec, asked.Nodes)
	case asked.Text != nil:
		return expansion.Expand(*asked.Text, expansion.MappingFuncFor(asked.Variables))
	case asked.Resource != nil:
		return helper.IsExtendedResourceName(core.ResourceName(*asked.Resource))
	case asked.Resources != nil:
		return faults(asked.Resources)
	case asked.Selector != nil:
		return selected(*asked.Selector, asked.Driver, asked.Device)
	}
	return nil
}

// quantity returns the number, and the text that the API server sends on.
func quantity(text []byte) any {
	var parsed resource.Quantity
	if err := parsed.UnmarshalJSON(text); err != nil {
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

// chosen names the nodes that a pod may go to, or is bound to: there, selectors are not read. Terms and labels that the API server would refuse are left out.
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
		matches, err := affinity.Match(&node)
		if spec.NodeName != "" {
			matches, err = spec.NodeName == node.Name, nil
		}
		if matches && err == nil {
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

// faults returns what the API server finds in the limits and requests of a container.
func faults(resources *v1.ResourceRequirements) any {
	var internal core.ResourceRequirements
	if err := corev1.Convert_v1_ResourceRequirements_To_core_ResourceRequirements(resources, &internal, nil); err != nil {
		log.Fatal(err)
	}
	found := []string{}
	for _, fault := range corevalidation.ValidateContainerResourceRequirements(
		&internal, nil, nil, corevalidation.PodValidationOptions{},
	) {
		found = append(found, fault.Error())
	}
	return found
}

// selected returns whether a selector matches a device, or the error with which the allocation ends.
func selected(expression, driver string, device resourceapi.Device) any {
	compiled := cel.GetCompiler(cel.Features{EnableConsumableCapacity: true, EnableListTypeAttributes: true}).CompileCELExpression(
		expression, cel.Options{},
	)
	if compiled.Error != nil {
		return nil
	}
	matches, _, err := compiled.DeviceMatches(context.Background(), cel.Device{
		Driver:                   driver,
		AllowMultipleAllocations: device.AllowMultipleAllocations,
		Attributes:               device.Attributes,
		Capacity:                 device.Capacity,
	})
	if err != nil {
		return map[string]any{"matches": false, "error": err.Error()}
	}
	return map[string]any{"matches": matches, "error": ""}
}
