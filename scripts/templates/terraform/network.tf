# The security list of the subnet. The subnet's own resource is yours: it must name this list in security_list_ids.
resource "oci_core_security_list" "nodes" {
  count          = var.subnet_cidr == "" ? 0 : 1
  compartment_id = local.network_ocid
  vcn_id         = var.vcn_ocid
  display_name   = "oci-cluster"

  dynamic "ingress_security_rules" {
    for_each = var.node_ports
    content {
      description = "oci-cluster: TCP ${ingress_security_rules.value.min}-${ingress_security_rules.value.max} between nodes"
      source      = var.subnet_cidr
      source_type = "CIDR_BLOCK"
      protocol    = "6"
      stateless   = false

      tcp_options {
        min = ingress_security_rules.value.min
        max = ingress_security_rules.value.max
      }
    }
  }

  dynamic "egress_security_rules" {
    for_each = var.node_ports
    content {
      description      = "oci-cluster: TCP ${egress_security_rules.value.min}-${egress_security_rules.value.max} between nodes"
      destination      = var.subnet_cidr
      destination_type = "CIDR_BLOCK"
      protocol         = "6"
      stateless        = false

      tcp_options {
        min = egress_security_rules.value.min
        max = egress_security_rules.value.max
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
