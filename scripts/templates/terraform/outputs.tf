output "log_group_ocid" {
  value       = var.log_group_name == "" ? "" : oci_logging_log_group.clusters[0].id
  description = "LOG_GROUP_OCID of config.env"
}

output "log_ocid" {
  value       = var.log_name == "" ? "" : oci_logging_log.nodes[0].id
  description = "LOG_OCID of config.env"
}

output "security_list_ocid" {
  value       = var.subnet_cidr == "" ? "" : oci_core_security_list.nodes[0].id
  description = "for security_list_ids of the subnet"
}
