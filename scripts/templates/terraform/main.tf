# What ./scripts/setup.sh --apply makes, as Terraform: whoever keeps a tenancy in Terraform uses this instead. README.md of
# this folder says how. A test holds the two to the same.

terraform {
  required_providers {
    oci = {
      source = "oracle/oci"
    }
  }
}

locals {
  images_ocid  = var.images_compartment_ocid == "" ? var.compartment_ocid : var.images_compartment_ocid
  network_ocid = var.network_compartment_ocid == "" ? var.compartment_ocid : var.network_compartment_ocid
  secrets_ocid = var.secrets_compartment_ocid == "" ? var.compartment_ocid : var.secrets_compartment_ocid
  jobs         = "compartment id ${var.compartment_ocid}"
  images       = "compartment id ${local.images_ocid}"
  network      = "compartment id ${local.network_ocid}"
  nodes        = "allow dynamic-group ${var.nodes_group} to"
  people       = "allow group ${var.people_group} to"
  in_bucket    = "target.bucket.name = '${var.bucket}'"
  own_objects  = "all {${local.in_bucket}, target.object.name = '${var.prefix}/*'}"
  objects = var.prefix == "" ? ["manage objects in ${local.jobs} where ${local.in_bucket}"] : [
    "manage objects in ${local.jobs} where ${local.own_objects}",
    "inspect objects in ${local.jobs} where ${local.in_bucket}",
  ]
}

resource "oci_identity_group" "people" {
  compartment_id = var.tenancy_ocid
  name           = var.people_group
  description    = "Launch clusters"
  defined_tags   = var.defined_tags
}

# Without resource.compartment.id, the Job Runs of every compartment could read and delete the team's objects.
resource "oci_identity_dynamic_group" "nodes" {
  compartment_id = var.tenancy_ocid
  name           = var.nodes_group
  description    = "Job Runs of clusters"
  matching_rule  = "all {resource.type = 'datasciencejobrun', resource.compartment.id = '${var.compartment_ocid}'}"
  defined_tags   = var.defined_tags
}

resource "oci_identity_policy" "clusters" {
  compartment_id = var.tenancy_ocid
  name           = var.policy_name
  description    = "Data Science clusters"
  defined_tags   = var.defined_tags
  depends_on     = [oci_identity_group.people, oci_identity_dynamic_group.nodes]
  statements = concat(
    ["allow service datascience to use virtual-network-family in ${local.network}"],
    var.keep_clusters_days > 0 ? ["allow service objectstorage-${var.region} to manage object-family in ${local.jobs} where ${local.in_bucket}"] : [],
    [for name in var.repositories : "${local.nodes} read repos in ${local.images} where target.repo.name = '${name}'"],
    [for what in local.objects : "${local.nodes} ${what}"],
    var.uses_logging ? ["${local.nodes} use log-content in ${local.jobs}"] : [],
    [for ocid in var.secrets : "${local.nodes} read secret-bundles in compartment id ${local.secrets_ocid} where target.secret.id = '${ocid}'"],
    ["${local.people} manage data-science-family in ${local.jobs}", "${local.people} use virtual-network-family in ${local.network}"],
    [for what in local.objects : "${local.people} ${what}"],
    var.uses_logging ? ["${local.people} read log-groups in ${local.jobs}", "${local.people} read log-content in ${local.jobs}"] : [],
    [for name in var.repositories : "${local.people} manage repos in ${local.images} where target.repo.name = '${name}'"]
  )
}

resource "oci_objectstorage_bucket" "clusters" {
  compartment_id = var.compartment_ocid
  namespace      = var.namespace
  name           = var.bucket
  defined_tags   = var.defined_tags
}

resource "oci_objectstorage_object_lifecycle_policy" "clusters" {
  count      = var.keep_clusters_days > 0 ? 1 : 0
  namespace  = var.namespace
  bucket     = oci_objectstorage_bucket.clusters.name
  depends_on = [oci_identity_policy.clusters]

  rules {
    name        = "oci-cluster-old-clusters"
    action      = "DELETE"
    target      = "objects"
    time_amount = var.keep_clusters_days
    time_unit   = "DAYS"
    is_enabled  = true

    dynamic "object_name_filter" {
      for_each = var.prefix == "" ? [] : [var.prefix]
      content {
        inclusion_prefixes = ["${object_name_filter.value}/"]
      }
    }
  }

  rules {
    name        = "oci-cluster-old-uploads"
    action      = "ABORT"
    target      = "multipart-uploads"
    time_amount = 7
    time_unit   = "DAYS"
    is_enabled  = true
  }
}

resource "oci_artifacts_container_repository" "images" {
  for_each       = toset(var.repositories)
  compartment_id = local.images_ocid
  display_name   = each.value
  defined_tags   = var.defined_tags
}

resource "oci_logging_log_group" "clusters" {
  count          = var.log_group_name == "" ? 0 : 1
  compartment_id = var.compartment_ocid
  display_name   = var.log_group_name
  defined_tags   = var.defined_tags
}

# One for all nodes: so nobody makes logs at a launch, and nobody needs to manage log groups.
resource "oci_logging_log" "nodes" {
  count        = var.log_name == "" ? 0 : 1
  log_group_id = var.log_group_ocid == "" ? oci_logging_log_group.clusters[0].id : var.log_group_ocid
  display_name = var.log_name
  log_type     = "CUSTOM"
  defined_tags = var.defined_tags
}
