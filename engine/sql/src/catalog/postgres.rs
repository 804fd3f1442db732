//! `pg_catalog`, as clients of PostgreSQL read it to list databases, schemas, tables, columns and functions. It is
//! built from the tables that the caller may name, so it reveals no others.

use quiver_query::tables::QUIVER_SCHEMA;

use super::rows::{Cell, Row, Shape};
use super::schemas::{INFORMATION_SCHEMA, PG_CATALOG, SCHEMAS, number, schema_oid};
use super::types::{OF_ARRAYS, PG_TYPES, type_oid};
use super::{Catalog, Relation};
use crate::session::{DATABASE, Session};

/// The OID of the owner of all objects.
const OWNER: i64 = 10;

const fn shape(name: &'static str, columns: &'static str) -> Shape {
    Shape { name, columns }
}

/// Columns of the tables about users.
const USERS: &str = "usename:t usesysid:l usecreatedb:b=false usesuper:b=false userepl:b=false usebypassrls:b=false \
                     passwd:t valuntil:z useconfig:T";
/// Columns of the statistics about tables.
const TABLES: &str = "relid:l schemaname:t relname:t seq_scan:l seq_tup_read:l idx_scan:l idx_tup_fetch:l n_tup_ins:l \
                      n_tup_upd:l n_tup_del:l n_tup_hot_upd:l n_live_tup:l n_dead_tup:l n_mod_since_analyze:l \
                      n_ins_since_vacuum:l last_vacuum:z last_autovacuum:z last_analyze:z last_autoanalyze:z \
                      vacuum_count:l autovacuum_count:l analyze_count:l autoanalyze_count:l";
/// The same about what tables read and write.
const TABLE_BLOCKS: &str = "relid:l schemaname:t relname:t heap_blks_read:l heap_blks_hit:l idx_blks_read:l \
                            idx_blks_hit:l toast_blks_read:l toast_blks_hit:l tidx_blks_read:l tidx_blks_hit:l";
/// The same about indexes.
const INDEXES: &str =
    "relid:l indexrelid:l schemaname:t relname:t indexrelname:t idx_scan:l idx_tup_read:l idx_tup_fetch:l";
const INDEX_BLOCKS: &str = "relid:l indexrelid:l schemaname:t relname:t indexrelname:t idx_blks_read:l idx_blks_hit:l";
/// The same about sequences.
const SEQUENCE_BLOCKS: &str = "relid:l schemaname:t relname:t blks_read:l blks_hit:l";

/// Tables that have rows.
pub(super) const FILLED: [Shape; 24] = [
    shape("pg_namespace", "oid:l nspname:t nspowner:l=10 nspacl:T xmin:l=1"),
    shape(
        "pg_class",
        "oid:l relname:t relnamespace:l reltype:l=0 reloftype:l=0 relowner:l=10 relam:l=0 relfilenode:l=0 \
         reltablespace:l=0 relpages:i=0 reltuples:f=-1 relallvisible:i=0 reltoastrelid:l=0 relhasindex:b=false \
         relisshared:b=false relpersistence:t=p relkind:t=r relnatts:h relchecks:h=0 relhasrules:b=false \
         relhastriggers:b=false relhassubclass:b=false relrowsecurity:b=false relforcerowsecurity:b=false \
         relispopulated:b=true relreplident:t=n relispartition:b=false relrewrite:l=0 relfrozenxid:l=0 relminmxid:l=0 \
         relacl:T reloptions:T relpartbound:t tableoid:l=1259 xmin:l=1",
    ),
    shape(
        "pg_attribute",
        "attrelid:l attname:t atttypid:l attstattarget:i=-1 attlen:h attnum:h attndims:i=0 attcacheoff:i=-1 \
         atttypmod:i=-1 attbyval:b=false attalign:t=i attstorage:t=p attcompression:t= attnotnull:b atthasdef:b=false \
         atthasmissing:b=false attidentity:t= attgenerated:t= attisdropped:b=false attislocal:b=true attinhcount:i=0 \
         attcollation:l=0 attacl:T attoptions:T attfdwoptions:T attmissingval:T xmin:l=1",
    ),
    shape(
        "pg_type",
        "oid:l typname:t typnamespace:l=11 typowner:l=10 typlen:h typbyval:b=false typtype:t=b typcategory:t \
         typispreferred:b=false typisdefined:b=true typdelim:t=, typrelid:l=0 typsubscript:l=0 typelem:l=0 typarray:l=0 \
         typinput:t typoutput:t typreceive:l typsend:t typmodin:t typmodout:t typanalyze:t typalign:t=i typstorage:t=p \
         typnotnull:b=false typbasetype:l=0 typtypmod:i=-1 typndims:i=0 typcollation:l=0 typdefaultbin:t typdefault:t \
         typacl:T tableoid:l=1247",
    ),
    shape(
        "pg_database",
        "oid:l datname:t datdba:l=10 encoding:i=6 datlocprovider:t=c datistemplate:b=false datallowconn:b=true \
         datconnlimit:i=-1 datfrozenxid:l=0 datminmxid:l=0 dattablespace:l=1663 datcollate:t=C datctype:t=C \
         daticulocale:t datcollversion:t datacl:T",
    ),
    shape(
        "pg_proc",
        "oid:l proname:t pronamespace:l proowner:l=10 prolang:l=12 procost:f=1 prorows:f=0 provariadic:l=0 prosupport:t \
         prokind:t=f prosecdef:b=false proleakproof:b=false proisstrict:b=false proretset:b=false provolatile:t=i \
         proparallel:t=s pronargs:h=0 pronargdefaults:h=0 prorettype:l=25 proargtypes:t= proallargtypes:T proargmodes:T \
         proargnames:T proargdefaults:t protrftypes:T prosrc:t probin:t prosqlbody:t proconfig:T proacl:T xmin:l=1",
    ),
    shape(
        "pg_language",
        "tableoid:l=2612 oid:l lanname:t lanowner:l=10 lanispl:b=false lanpltrusted:b=true lanplcallfoid:l=0 \
         laninline:l=0 lanvalidator:l=0 lanacl:T",
    ),
    shape(
        "pg_roles",
        "oid:l rolname:t rolsuper:b=false rolinherit:b=true rolcreaterole:b=false rolcreatedb:b=false rolcanlogin:b=true \
         rolreplication:b=false rolconnlimit:i=-1 rolpassword:t rolvaliduntil:z rolbypassrls:b=false rolconfig:T",
    ),
    shape(
        "pg_authid",
        "oid:l rolname:t rolsuper:b=false rolinherit:b=true rolcreaterole:b=false rolcreatedb:b=false \
         rolcanlogin:b=true rolreplication:b=false rolbypassrls:b=false rolconnlimit:i=-1 rolpassword:t rolvaliduntil:z",
    ),
    shape(
        "pg_stat_activity",
        "datid:l datname:t pid:i leader_pid:i usesysid:l=10 usename:t application_name:t client_addr:t \
         client_hostname:t client_port:i backend_start:z xact_start:z query_start:z state_change:z wait_event_type:t wait_event:t \
         state:t=active backend_xid:l backend_xmin:l query_id:l query:t backend_type:t=client",
    ),
    shape("pg_timezone_names", "name:t abbrev:t utc_offset:t is_dst:b=false"),
    shape("pg_user", USERS),
    shape("pg_shadow", USERS),
    shape("pg_timezone_abbrevs", "abbrev:t utc_offset:t is_dst:b=false"),
    shape(
        "pg_stat_archiver",
        "archived_count:l=0 last_archived_wal:t last_archived_time:z failed_count:l=0 last_failed_wal:t \
         last_failed_time:z stats_reset:z",
    ),
    shape(
        "pg_stat_wal",
        "wal_records:l=0 wal_fpi:l=0 wal_bytes:l=0 wal_buffers_full:l=0 wal_write:l=0 wal_sync:l=0 wal_write_time:f=0 \
         wal_sync_time:f=0 stats_reset:z",
    ),
    shape(
        "pg_tables",
        "schemaname:t tablename:t tableowner:t tablespace:t hasindexes:b=false hasrules:b=false hastriggers:b=false \
         rowsecurity:b=false",
    ),
    shape(
        "pg_settings",
        "name:t setting:t unit:t category:t short_desc:t context:t=internal vartype:t=string source:t=default \
         min_val:t max_val:t enumvals:T boot_val:t reset_val:t sourcefile:t sourceline:i pending_restart:b=false",
    ),
    shape(
        "pg_stat_database",
        "datid:l datname:t numbackends:i=1 xact_commit:l=0 xact_rollback:l=0 blks_read:l=0 blks_hit:l=0 tup_returned:l=0 \
         tup_fetched:l=0 tup_inserted:l=0 tup_updated:l=0 tup_deleted:l=0 conflicts:l=0 temp_files:l=0 temp_bytes:l=0 \
         deadlocks:l=0 checksum_failures:l blk_read_time:f=0 blk_write_time:f=0 session_time:f=0 active_time:f=0 \
         idle_in_transaction_time:f=0 sessions:l=0 sessions_abandoned:l=0 sessions_fatal:l=0 sessions_killed:l=0 \
         stats_reset:z",
    ),
    shape(
        "pg_stat_bgwriter",
        "checkpoints_timed:l=0 checkpoints_req:l=0 checkpoint_write_time:f=0 checkpoint_sync_time:f=0 \
         buffers_checkpoint:l=0 buffers_clean:l=0 maxwritten_clean:l=0 buffers_backend:l=0 buffers_backend_fsync:l=0 \
         buffers_alloc:l=0 stats_reset:z",
    ),
    shape("pg_stat_ssl", "pid:i ssl:b version:t cipher:t bits:i client_dn:t client_serial:t issuer_dn:t"),
    shape("pg_stat_gssapi", "pid:i gss_authenticated:b=false principal:t encrypted:b=false"),
    shape("pg_am", "oid:l amname:t amhandler:t amtype:t"),
    shape("pg_tablespace", "oid:l spcname:t spcowner:l=10 spcacl:T spcoptions:T"),
];

/// Tables about objects that Quiver does not have.
pub(super) const EMPTY: [Shape; 98] = [
    shape("pg_attrdef", "oid:l adrelid:l adnum:h adbin:t"),
    shape(
        "pg_index",
        "indexrelid:l indrelid:l indnatts:h indnkeyatts:h indisunique:b indnullsnotdistinct:b \
         indisprimary:b indisexclusion:b indimmediate:b indisclustered:b indisvalid:b indcheckxmin:b indisready:b \
         indislive:b indisreplident:b indkey:H indcollation:T indclass:T indoption:H indexprs:t indpred:t",
    ),
    shape(
        "pg_constraint",
        "oid:l conname:t connamespace:l contype:t condeferrable:b condeferred:b convalidated:b \
         conrelid:l contypid:l conindid:l conparentid:l confrelid:l confupdtype:t confdeltype:t confmatchtype:t \
         conislocal:b coninhcount:i connoinherit:b conkey:T confkey:T conpfeqop:T conppeqop:T conffeqop:T confdelsetcols:T conexclop:T \
         conbin:t",
    ),
    shape("pg_description", "objoid:l classoid:l objsubid:i description:t"),
    shape("pg_shdescription", "objoid:l classoid:l description:t"),
    shape("pg_inherits", "inhrelid:l inhparent:l inhseqno:i inhdetachpending:b"),
    shape(
        "pg_collation",
        "oid:l collname:t collnamespace:l collowner:l collprovider:t collisdeterministic:b \
         collencoding:i collcollate:t collctype:t colliculocale:t collversion:t",
    ),
    shape("pg_policy", "oid:l polname:t polrelid:l polcmd:t polpermissive:b polroles:T polqual:t polwithcheck:t"),
    shape(
        "pg_trigger",
        "oid:l tgrelid:l tgparentid:l tgname:t tgfoid:l tgtype:h tgenabled:t tgisinternal:b \
         tgconstrrelid:l tgconstrindid:l tgconstraint:l tgdeferrable:b tginitdeferred:b tgnargs:h tgattr:T tgargs:t \
         tgqual:t tgoldtable:t tgnewtable:t",
    ),
    shape("pg_rewrite", "oid:l rulename:t ev_class:l ev_type:t ev_enabled:t is_instead:b ev_qual:t ev_action:t"),
    shape(
        "pg_statistic_ext",
        "oid:l stxrelid:l stxname:t stxnamespace:l stxowner:l stxstattarget:i stxkeys:T \
         stxkind:T stxexprs:t",
    ),
    shape(
        "pg_publication",
        "oid:l pubname:t pubowner:l puballtables:b pubinsert:b pubupdate:b pubdelete:b \
         pubtruncate:b pubviaroot:b",
    ),
    shape("pg_publication_rel", "oid:l prpubid:l prrelid:l prqual:t prattrs:T"),
    shape("pg_publication_namespace", "oid:l pnpubid:l pnnspid:l"),
    shape(
        "pg_partitioned_table",
        "partrelid:l partstrat:t partnatts:h partdefid:l partattrs:T partclass:T \
         partcollation:T partexprs:t",
    ),
    shape("pg_foreign_table", "ftrelid:l ftserver:l ftoptions:T"),
    shape("pg_foreign_server", "oid:l srvname:t srvowner:l srvfdw:l srvtype:t srvversion:t srvacl:T srvoptions:T"),
    shape("pg_foreign_data_wrapper", "oid:l fdwname:t fdwowner:l fdwhandler:l fdwvalidator:l fdwacl:T fdwoptions:T"),
    shape(
        "pg_extension",
        "oid:l extname:t extowner:l extnamespace:l extrelocatable:b extversion:t extconfig:T extcondition:T",
    ),
    shape("pg_enum", "oid:l enumtypid:l enumsortorder:f enumlabel:t"),
    shape("pg_range", "rngtypid:l rngsubtype:l rngmultitypid:l rngcollation:l rngsubopc:l rngcanonical:t rngsubdiff:t"),
    shape("pg_depend", "classid:l objid:l objsubid:i refclassid:l refobjid:l refobjsubid:i deptype:t"),
    shape("pg_sequence", "seqrelid:l seqtypid:l seqstart:l seqincrement:l seqmax:l seqmin:l seqcache:l seqcycle:b"),
    shape(
        "pg_sequences",
        "schemaname:t sequencename:t sequenceowner:t data_type:t start_value:l min_value:l \
         max_value:l increment_by:l cycle:b cache_size:l last_value:l",
    ),
    shape("pg_views", "schemaname:t viewname:t viewowner:t definition:t"),
    shape(
        "pg_matviews",
        "schemaname:t matviewname:t matviewowner:t tablespace:t hasindexes:b ispopulated:b definition:t",
    ),
    shape("pg_indexes", "schemaname:t tablename:t indexname:t tablespace:t indexdef:t"),
    shape("pg_event_trigger", "oid:l evtname:t evtevent:t evtowner:l evtfoid:l evtenabled:t evttags:T"),
    shape("pg_auth_members", "roleid:l member:l grantor:l admin_option:b"),
    shape(
        "pg_opclass",
        "oid:l opcmethod:l opcname:t opcnamespace:l opcowner:l opcfamily:l opcintype:l opcdefault:b opckeytype:l",
    ),
    shape("pg_opfamily", "oid:l opfmethod:l opfname:t opfnamespace:l opfowner:l"),
    shape(
        "pg_operator",
        "oid:l oprname:t oprnamespace:l oprowner:l oprkind:t oprcanmerge:b oprcanhash:b oprleft:l oprright:l \
         oprresult:l oprcom:l oprnegate:l oprcode:l oprrest:l oprjoin:l",
    ),
    shape(
        "pg_amop",
        "oid:l amopfamily:l amoplefttype:l amoprighttype:l amopstrategy:h amoppurpose:t amopopr:l amopmethod:l \
         amopsortfamily:l",
    ),
    shape("pg_amproc", "oid:l amprocfamily:l amproclefttype:l amprocrighttype:l amprocnum:h amproc:l"),
    shape(
        "pg_conversion",
        "oid:l conname:t connamespace:l conowner:l conforencoding:i contoencoding:i conproc:t condefault:b",
    ),
    shape("pg_default_acl", "oid:l defaclrole:l defaclnamespace:l defaclobjtype:t defaclacl:T"),
    shape("pg_db_role_setting", "setdatabase:l setrole:l setconfig:T"),
    shape("pg_ts_config", "oid:l cfgname:t cfgnamespace:l cfgowner:l cfgparser:l"),
    shape("pg_ts_dict", "oid:l dictname:t dictnamespace:l dictowner:l dicttemplate:l dictinitoption:t"),
    shape("pg_ts_parser", "oid:l prsname:t prsnamespace:l prsstart:t prstoken:t prsend:t prsheadline:t prslextype:t"),
    shape("pg_ts_template", "oid:l tmplname:t tmplnamespace:l tmplinit:t tmpllexize:t"),
    shape(
        "pg_subscription",
        "oid:l subdbid:l subskiplsn:t subname:t subowner:l subenabled:b subbinary:b substream:b subtwophasestate:t \
         subdisableonerr:b subconninfo:t subslotname:t subsynccommit:t subpublications:T",
    ),
    shape("pg_largeobject_metadata", "oid:l lomowner:l lomacl:T"),
    shape("pg_user_mappings", "umid:l srvid:l srvname:t umuser:l usename:t umoptions:T"),
    shape(
        "pg_locks",
        "locktype:t database:l relation:l page:i tuple:h virtualxid:t transactionid:l classid:l objid:l objsubid:h \
         virtualtransaction:t pid:i mode:t granted:b fastpath:b waitstart:z",
    ),
    shape("pg_cast", "oid:l castsource:l casttarget:l castfunc:l castcontext:t castmethod:t"),
    shape("pg_stat_user_tables", TABLES),
    shape("pg_parameter_acl", "oid:l parname:t paracl:T"),
    shape("pg_policies", "schemaname:t tablename:t policyname:t permissive:t roles:T cmd:t qual:t with_check:t"),
    shape("pg_rules", "schemaname:t tablename:t rulename:t definition:t"),
    shape("pg_group", "groname:t grosysid:l grolist:T"),
    shape("pg_stat_all_tables", TABLES),
    shape("pg_statio_user_tables", TABLE_BLOCKS),
    shape(
        "pg_aggregate",
        "aggfnoid:l aggkind:t aggnumdirectargs:h aggtransfn:t aggfinalfn:t aggtranstype:l agginitval:t",
    ),
    shape("pg_seclabel", "objoid:l classoid:l objsubid:i provider:t label:t"),
    shape("pg_seclabels", "objoid:l classoid:l objsubid:i objtype:t objnamespace:l objname:t provider:t label:t"),
    shape("pg_shseclabel", "objoid:l classoid:l provider:t label:t"),
    shape("pg_shdepend", "dbid:l classid:l objid:l objsubid:i refclassid:l refobjid:l deptype:t"),
    shape(
        "pg_available_extension_versions",
        "name:t version:t installed:b superuser:b trusted:b relocatable:b schema:t requires:T comment:t",
    ),
    shape("pg_prepared_xacts", "transaction:l gid:t prepared:z owner:t database:t"),
    shape("pg_available_extensions", "name:t default_version:t installed_version:t comment:t"),
    shape(
        "pg_stat_replication",
        "pid:i usesysid:l usename:t application_name:t client_addr:t client_hostname:t client_port:i backend_start:z \
         backend_xmin:l state:t sent_lsn:t write_lsn:t flush_lsn:t replay_lsn:t write_lag:t flush_lag:t replay_lag:t \
         sync_priority:i sync_state:t reply_time:z",
    ),
    shape(
        "pg_replication_slots",
        "slot_name:t plugin:t slot_type:t datoid:l database:t temporary:b active:b active_pid:i xmin:l catalog_xmin:l \
         restart_lsn:t confirmed_flush_lsn:t wal_status:t safe_wal_size:l two_phase:b",
    ),
    shape("pg_stat_user_indexes", INDEXES),
    shape(
        "pg_stats",
        "schemaname:t tablename:t attname:t inherited:b null_frac:f avg_width:i n_distinct:f most_common_vals:T \
         most_common_freqs:T histogram_bounds:T correlation:f most_common_elems:T most_common_elem_freqs:T \
         elem_count_histogram:T",
    ),
    shape("pg_stat_sys_tables", TABLES),
    shape("pg_stat_all_indexes", INDEXES),
    shape("pg_stat_sys_indexes", INDEXES),
    shape("pg_statio_all_tables", TABLE_BLOCKS),
    shape("pg_statio_sys_tables", TABLE_BLOCKS),
    shape("pg_statio_all_indexes", INDEX_BLOCKS),
    shape("pg_statio_user_indexes", INDEX_BLOCKS),
    shape("pg_statio_sys_indexes", INDEX_BLOCKS),
    shape("pg_statio_all_sequences", SEQUENCE_BLOCKS),
    shape("pg_statio_user_sequences", SEQUENCE_BLOCKS),
    shape("pg_stat_user_functions", "funcid:l schemaname:t funcname:t calls:l total_time:f self_time:f"),
    shape(
        "pg_stat_database_conflicts",
        "datid:l datname:t confl_tablespace:l confl_lock:l confl_snapshot:l confl_bufferpin:l confl_deadlock:l",
    ),
    shape(
        "pg_stat_slru",
        "name:t blks_zeroed:l blks_hit:l blks_read:l blks_written:l blks_exists:l flushes:l truncates:l stats_reset:z",
    ),
    shape(
        "pg_stat_wal_receiver",
        "pid:i status:t receive_start_lsn:t receive_start_tli:i written_lsn:t flushed_lsn:t received_tli:i \
         last_msg_send_time:z last_msg_receipt_time:z latest_end_lsn:t latest_end_time:z slot_name:t sender_host:t \
         sender_port:i conninfo:t",
    ),
    shape(
        "pg_stat_subscription",
        "subid:l subname:t pid:i relid:l received_lsn:t last_msg_send_time:z last_msg_receipt_time:z latest_end_lsn:t \
         latest_end_time:z",
    ),
    shape(
        "pg_stat_progress_vacuum",
        "pid:i datid:l datname:t relid:l phase:t heap_blks_total:l heap_blks_scanned:l heap_blks_vacuumed:l \
         index_vacuum_count:l max_dead_tuples:l num_dead_tuples:l",
    ),
    shape(
        "pg_stat_progress_analyze",
        "pid:i datid:l datname:t relid:l phase:t sample_blks_total:l sample_blks_scanned:l ext_stats_total:l \
         ext_stats_computed:l child_tables_total:l child_tables_done:l current_child_table_relid:l",
    ),
    shape(
        "pg_stat_progress_create_index",
        "pid:i datid:l datname:t relid:l index_relid:l command:t phase:t lockers_total:l lockers_done:l \
         current_locker_pid:l blocks_total:l blocks_done:l tuples_total:l tuples_done:l partitions_total:l \
         partitions_done:l",
    ),
    shape(
        "pg_stat_progress_copy",
        "pid:i datid:l datname:t relid:l command:t type:t bytes_processed:l bytes_total:l tuples_processed:l \
         tuples_excluded:l",
    ),
    shape("pg_cursors", "name:t statement:t is_holdable:b is_binary:b is_scrollable:b creation_time:z"),
    shape(
        "pg_prepared_statements",
        "name:t statement:t prepare_time:z parameter_types:T from_sql:b generic_plans:l custom_plans:l",
    ),
    shape("pg_config", "name:t setting:t"),
    shape("pg_file_settings", "sourcefile:t sourceline:i seqno:i name:t setting:t applied:b error:t"),
    shape(
        "pg_hba_file_rules",
        "line_number:i type:t database:T user_name:T address:t netmask:t auth_method:t options:T error:t",
    ),
    shape("pg_init_privs", "objoid:l classoid:l objsubid:i privtype:t initprivs:T"),
    shape("pg_transform", "oid:l trftype:l trflang:l trffromsql:t trftosql:t"),
    shape("pg_user_mapping", "oid:l umuser:l umserver:l umoptions:T"),
    shape("pg_ts_config_map", "mapcfg:l maptokentype:i mapseqno:i mapdict:l"),
    shape("pg_replication_origin", "roident:l roname:t"),
    shape("pg_replication_origin_status", "local_id:l external_id:t remote_lsn:t local_lsn:t"),
    shape("pg_subscription_rel", "srsubid:l srrelid:l srsubstate:t srsublsn:t"),
    shape("pg_publication_tables", "pubname:t schemaname:t tablename:t attnames:T rowfilter:t"),
    shape(
        "pg_stats_ext",
        "schemaname:t tablename:t statistics_schemaname:t statistics_name:t statistics_owner:t attnames:T exprs:T \
         kinds:T inherited:b n_distinct:t dependencies:t most_common_vals:T most_common_val_nulls:T most_common_freqs:T \
         most_common_base_freqs:T",
    ),
];

impl Catalog {
    /// Rows of a table of `pg_catalog`.
    pub(super) fn postgres_rows(&self, name: &str, session: &Session) -> Vec<Row> {
        match name {
            "pg_namespace" => SCHEMAS
                .iter()
                .map(|schema| vec![("oid", schema_oid(schema).into()), ("nspname", (*schema).into())])
                .collect(),
            "pg_class" => self.classes(),
            "pg_attribute" => self.attributes(),
            "pg_type" => types(),
            "pg_database" => vec![vec![("oid", number(&[DATABASE]).into()), ("datname", DATABASE.into())]],
            "pg_proc" => Self::procedures(),
            "pg_language" => vec![vec![("oid", 12_i64.into()), ("lanname", "internal".into())]],
            "pg_roles" | "pg_authid" => vec![vec![("oid", OWNER.into()), ("rolname", session.user.as_str().into())]],
            "pg_user" | "pg_shadow" => {
                vec![vec![("usesysid", OWNER.into()), ("usename", session.user.as_str().into())]]
            }
            "pg_stat_activity" => vec![vec![
                ("datid", number(&[DATABASE]).into()),
                ("datname", DATABASE.into()),
                ("pid", i64::from(session.backend).into()),
                ("usename", session.user.as_str().into()),
            ]],
            "pg_stat_database" => {
                vec![vec![("datid", number(&[DATABASE]).into()), ("datname", DATABASE.into())]]
            }
            "pg_stat_bgwriter" | "pg_stat_archiver" | "pg_stat_wal" => vec![Vec::new()],
            "pg_timezone_abbrevs" => vec![vec![("abbrev", "UTC".into()), ("utc_offset", "00:00:00".into())]],
            "pg_stat_gssapi" => vec![vec![("pid", i64::from(session.backend).into())]],
            "pg_stat_ssl" => {
                let is_on = session.settings.get("ssl").is_some_and(|value| value == "on");
                vec![vec![("pid", i64::from(session.backend).into()), ("ssl", is_on.into())]]
            }
            "pg_timezone_names" => {
                vec![vec![("name", "UTC".into()), ("abbrev", "UTC".into()), ("utc_offset", "00:00:00".into())]]
            }
            "pg_tables" => {
                let row = |entry: &quiver_query::tables::TableEntry| -> Row {
                    vec![
                        ("schemaname", entry.schema.into()),
                        ("tablename", entry.name.as_str().into()),
                        ("tableowner", session.user.as_str().into()),
                    ]
                };
                self.entries.iter().map(row).collect()
            }
            "pg_settings" => {
                let row = |(name, value): (&String, &String)| -> Row {
                    let value = || Cell::Text(value.clone());
                    vec![
                        ("name", setting_name(name).into()),
                        ("setting", value()),
                        ("boot_val", value()),
                        ("reset_val", value()),
                    ]
                };
                session.settings.iter().map(row).collect()
            }
            "pg_tablespace" => vec![vec![("oid", 1663_i64.into()), ("spcname", "pg_default".into())]],
            _ => Vec::new(),
        }
    }

    fn classes(&self) -> Vec<Row> {
        let columns = |relation: &Relation| {
            let named = (Some(relation.schema.to_owned()), relation.name.clone());
            self.fixed(&named).map_or(0, |columns| columns.len() as i64)
        };
        let row = |relation: &Relation| -> Row {
            let system = matches!(relation.schema, PG_CATALOG | INFORMATION_SCHEMA);
            vec![
                ("oid", relation.oid.into()),
                ("relname", relation.name.as_str().into()),
                ("relnamespace", schema_oid(relation.schema).into()),
                ("relnatts", columns(relation).into()),
                ("relkind", if system { "v" } else { "r" }.into()),
            ]
        };
        self.relations().iter().map(row).collect()
    }

    fn attributes(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        for entry in &self.entries {
            let relation = number(&[entry.schema, &entry.name]);
            for (at, field) in entry.columns.fields().iter().enumerate() {
                let oid = type_oid(field.data_type());
                let known = super::types::pg_type(oid);
                rows.push(vec![
                    ("attrelid", relation.into()),
                    ("attname", field.name().as_str().into()),
                    ("atttypid", oid.into()),
                    ("attlen", known.map_or(-1, |known| i64::from(known.len)).into()),
                    ("attnum", (at as i64 + 1).into()),
                    ("attndims", i64::from(known.is_none()).into()),
                    ("attnotnull", (!field.is_nullable()).into()),
                ]);
            }
        }
        rows
    }

    fn procedures() -> Vec<Row> {
        let row = |function: &super::functions::CatalogFunction| -> Row {
            vec![
                ("oid", function.oid.into()),
                ("proname", function.name.into()),
                ("pronamespace", schema_oid(QUIVER_SCHEMA).into()),
                ("prokind", function.kind.into()),
                ("proretset", function.is_table.into()),
                ("prorettype", (if function.is_table { 2249_i64 } else { 25 }).into()),
                ("pronargs", (function.arguments().count() as i64).into()),
                // All arguments are listed as texts.
                ("proargtypes", vec!["25"; function.arguments().count()].join(" ").into()),
                ("proargnames", Cell::Texts(function.arguments().map(str::to_owned).collect())),
                ("prosrc", function.name.into()),
            ]
        };
        let receiving = PG_TYPES.iter().map(|known| (known.stem, known.receive)).chain([OF_ARRAYS]);
        let receives = |(stem, receive): (&str, u32)| -> Row {
            vec![
                ("oid", receive.into()),
                ("proname", format!("{stem}recv").into()),
                ("pronamespace", schema_oid(PG_CATALOG).into()),
            ]
        };
        super::functions::known().iter().map(row).chain(receiving.map(receives)).collect()
    }
}

/// The name of a setting as lists spell it. Settings are known by names in small letters.
fn setting_name(name: &str) -> &str {
    match name {
        "datestyle" => "DateStyle",
        "intervalstyle" => "IntervalStyle",
        "timezone" => "TimeZone",
        other => other,
    }
}

fn types() -> Vec<Row> {
    let mut rows = Vec::new();
    for known in &PG_TYPES {
        rows.push(vec![
            ("oid", known.oid.into()),
            ("typname", known.name.into()),
            ("typlen", i64::from(known.len).into()),
            ("typcategory", known.category.into()),
            ("typtype", if known.category == "P" { "p" } else { "b" }.into()),
            ("typarray", known.array.into()),
            // Clients look for the functions of array types by name and by OID.
            ("typinput", format!("{}in", known.stem).into()),
            ("typreceive", known.receive.into()),
        ]);
        if known.array != 0 {
            rows.push(vec![
                ("oid", known.array.into()),
                ("typname", format!("_{}", known.name).into()),
                ("typlen", (-1_i64).into()),
                ("typcategory", "A".into()),
                ("typelem", known.oid.into()),
                ("typinput", format!("{}in", OF_ARRAYS.0).into()),
                ("typreceive", OF_ARRAYS.1.into()),
            ]);
        }
    }
    rows
}

#[cfg(test)]
mod tests;
