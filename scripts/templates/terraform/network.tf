locals {
  between = flatten([for cidr in split(",", var.subnet_cidr) : [for ports in var.node_ports : { cidr = cidr, ports = ports }]])
}

# The security list of the subnet. The subnet's own resource is yours: it must name this list in security_list_ids.
resource "oci_core_security_list" "nodes" {
  count          = var.subnet_cidr == "" ? 0 : 1
  compartment_id = local.network_ocid
  vcn_id         = var.vcn_ocid
  display_name   = "oci-cluster"
  defined_tags   = var.defined_tags

  dynamic "ingress_security_rules" {
    for_each = local.between
    content {
      description = "oci-cluster: TCP ${ingress_security_rules.value.ports.min}-${ingress_security_rules.value.ports.max} between nodes"
      source      = ingress_security_rules.value.cidr
      source_type = "CIDR_BLOCK"
      protocol    = "6"
      stateless   = false

      tcp_options {
        min = ingress_security_rules.value.ports.min
        max = ingress_security_rules.value.ports.max
      }
    }
  }

  dynamic "egress_security_rules" {
    for_each = local.between
    content {
      description      = "oci-cluster: TCP ${egress_security_rules.value.ports.min}-${egress_security_rules.value.ports.max} between nodes"
      destination      = egress_security_rules.value.cidr
      destination_type = "CIDR_BLOCK"
      protocol         = "6"
      stateless        = false

      tcp_options {
        min = egress_security_rules.value.ports.min
        max = egress_security_rules.value.ports.max
      }
    }
  }

  egress_security_rules {
    description      = "oci-cluster: storage, registry, logging"
    destination      = "0.0.0.0/0"
    destination_type = "CIDR_BLOCK"
    protocol         = "6"
    stateless        = false

    tcp_options {
      min = 443
      max = 443
    }
  }
}
